"""Answers for files of rows, in order."""
