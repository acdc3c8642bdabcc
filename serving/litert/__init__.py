"""Exports models as LiteRT versions."""
