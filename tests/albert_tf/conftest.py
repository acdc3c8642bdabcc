"""Fixtures of the models and their training."""

import pytest
import tensorflow as tf


@pytest.fixture(scope="module")
def eagerly():
    """Functions run without graphs, which for a tiny model take a hundred times as long to build as to run.

    For tests of what is around the steps; `test_steps.py`, `test_stored.py` and `test_devices.py` train with graphs.
    """
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def in_graphs():
    """The exceptions in a module that runs eagerly."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    yield
    tf.config.run_functions_eagerly(before)
