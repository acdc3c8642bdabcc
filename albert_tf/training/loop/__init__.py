"""The training loop, whatever is trained."""
