"""Pre-training on permutations: the model, the memory from batch to batch, and what a run needs for them."""
