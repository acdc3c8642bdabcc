"""Exports, serves and calls models."""

from tfrecords.base.machine import started  # noqa: F401
