"""Readers of tables and of the files of a user's own data."""
