"""Exports, serves and calls models."""

from tfrecords.base import started  # noqa: F401
