"""Permutation pre-training."""
