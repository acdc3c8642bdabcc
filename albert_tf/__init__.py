"""Everything between tensors and trained weights."""
