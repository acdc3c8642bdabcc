"""Starts TensorFlow, and shows its C++ messages only if that fails; import this module before TensorFlow."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tfrecords.base.machine.processes import without_collections


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        terminal = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(terminal, kept.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


if "tensorflow" not in sys.modules:
    # Collections would take a fifth of the import's time.
    with _quietly(), without_collections():
        import tensorflow as tf

        # Looks for GPUs now, which prints too, without taking them.
        tf.config.list_physical_devices()
