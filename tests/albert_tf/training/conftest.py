"""Fixtures of training."""

import pytest
import tensorflow as tf


@pytest.fixture(scope="module")
def eagerly():
    """Steps run without graphs, which for a tiny model take a hundred times as long to build as to run.

    For tests of what is around the steps; `test_stored.py` and `test_devices.py` train with graphs.
    """
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
