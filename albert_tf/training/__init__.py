"""Training loops: pre-training, evaluation, and the files of a run."""
