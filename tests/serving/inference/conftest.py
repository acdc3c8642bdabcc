"""oneDNN's products outside graphs."""

import pytest
import tensorflow as tf

from serving.inference import onednn


@pytest.fixture
def products_anywhere(monkeypatch):
    """oneDNN's ops run in graphs only. Here each call is a graph of its own, as the weights of one never change: that
    takes a third of the time of a graph of the whole encoder."""

    def alone(function):
        return lambda *inputs, **options: tf.function(function, autograph=False)(*inputs, **options)

    for name in ("matmul", "batch_matmul", "quantized_matmul"):
        monkeypatch.setattr(onednn, name, alone(getattr(onednn, name)))
