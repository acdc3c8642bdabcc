"""Answers to files of rows, in order: labels, scores, vectors or spans of millions of texts."""
