"""Reads records, and builds the rows of training and serving."""
