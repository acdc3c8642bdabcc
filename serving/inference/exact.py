"""The 8-bit encoder with products of whole numbers that nothing can clip: what an export's answers are held against."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.layers.dense import activation
from serving.inference import onednn
from serving.inference.int8 import QuantizedDense

_ACTIVATIONS = {fused: name for name, fused in onednn.FUSED_ACTIVATIONS.items()}


class ExactDense:
    """A QuantizedDense in float32, which holds sums of its products exactly up to 2**24."""

    def __init__(self, layer: QuantizedDense):
        self.layer = layer

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> tf.Tensor:
        """As QuantizedDense."""
        plain, highest = (tf.int8, 127) if inputs.dtype == tf.qint8 else (tf.uint8, 255)
        numbers, kernel = (tf.cast(part, tf.float32) for part in (tf.bitcast(inputs, plain), self.layer.kernel))
        found = tf.matmul(numbers, kernel) * (largest / highest * self.layer.range / 127) + self.layer.bias
        if function is not None:
            found = activation(_ACTIVATIONS[function])(found)
        if residual is not None:
            found += residual
        if dtype != tf.quint8:
            return tf.cast(found, dtype)
        low, high = output_range
        found = tf.round(tf.clip_by_value((found - low) * (255 / (high - low)), 0, 255))
        return tf.bitcast(tf.cast(found, tf.uint8), tf.quint8)


@contextlib.contextmanager
def exact_products(encoder) -> Iterator[None]:
    """While it lasts, what is traced of an 8-bit InferenceEncoder has ExactDense for its products."""
    layers = [
        (half, name, part)
        for half in (encoder.embeddings.projection, *encoder.attentions, *encoder.feed_forwards)
        if half is not None
        for name, part in list(vars(half).items())
        if isinstance(part, QuantizedDense)
    ]
    for half, name, part in layers:
        setattr(half, name, ExactDense(part))
    try:
        yield
    finally:
        for half, name, part in layers:
            setattr(half, name, part)
