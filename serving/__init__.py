"""Exports, servers and clients of models."""

from tfrecords.base import started  # noqa: F401
