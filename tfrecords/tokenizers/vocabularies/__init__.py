"""Trains, changes and compares vocabularies."""
