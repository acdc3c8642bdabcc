"""Starts TensorFlow, and shows its C++ messages only if that fails; import this module before TensorFlow."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    # They would search the objects of an import again and again, a fifth of its time, and find nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
    with _quietly(), _without_collections():
        import tensorflow as tf

        # Looks for GPUs now, which prints too, without taking them.
        tf.config.list_physical_devices()
