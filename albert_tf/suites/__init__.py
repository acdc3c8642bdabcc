"""Data sets that measure a model without training it."""
