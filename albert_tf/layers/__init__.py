"""The encoder: its layers, its loop over depth, and the heads on it."""
