"""XLNet's permutation pre-training."""
