"""Suites of data sets that measure a model without training it."""
