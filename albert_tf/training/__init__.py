"""Loops around the models: pre-training, evaluation, what is kept of a run."""
