"""Builds folders of records."""
