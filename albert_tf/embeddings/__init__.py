"""Searches texts by their vectors."""
