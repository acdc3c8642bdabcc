"""Everything between weights and answers."""

from tfrecords.base import started  # noqa: F401
