"""Runs a model on files of rows, in order."""
