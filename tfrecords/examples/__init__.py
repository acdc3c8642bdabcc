"""Examples of pre-training: segments, masks, packed rows, permutations."""
