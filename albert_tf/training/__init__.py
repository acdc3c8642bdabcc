"""Training loops, evaluation, and run folders."""
