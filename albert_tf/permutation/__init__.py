"""Permutation pre-training: the model, its memory and its part of a run."""
