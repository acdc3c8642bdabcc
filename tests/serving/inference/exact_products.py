"""8-bit products without rounding of their sums, and how far oneDNN's are from them.

`python -m` this module prints the distance relative to the largest: of extreme inputs and wide weights, neighbours of
one sign among them, which saturate where anything does; "wide" without int8's limit on their sums.
"""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

import contextlib

import numpy as np
import tensorflow as tf

from albert_tf.base.layers import activation
from serving.inference import int8, onednn
from serving.inference.int8 import QuantizedDense, quantize

INPUTS, UNITS = 130, 48
_ACTIVATIONS = {fused: name for name, fused in onednn.FUSED_ACTIVATIONS.items()}


class ExactDense:
    """Computes a QuantizedDense in float32; its sums of integers are exact up to 2**24."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None):
        bias, largest = self.layer.of_inputs(largest)
        numbers, kernel = (tf.cast(part, tf.float32) for part in (tf.bitcast(inputs, tf.uint8), self.layer.kernel))
        found = tf.matmul(numbers, kernel) * (largest / 255 * self.layer.range / 127) + bias
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
def exact_products(encoder):
    """Replaces an encoder's 8-bit products by float32 ones of the same integers, for tracing; restores them on exit."""
    halves = [encoder.embeddings.projection, *encoder.attentions, *encoder.feed_forwards]
    layers = [
        (half, name, layer)
        for half in filter(None, halves)
        for name, layer in vars(half).items()
        if isinstance(layer, QuantizedDense)
    ]
    try:
        for half, name, layer in layers:
            setattr(half, name, ExactDense(layer))
        yield
    finally:
        for half, name, layer in layers:
            setattr(half, name, layer)


def widest(kernel):
    """Replaces `largest_pairs`: the largest weight of each unit, so that sums of two products may be too large."""
    return np.abs(kernel).max(axis=0)


def largest_error(signed, tokens):
    rng = np.random.default_rng(tokens)
    kernel = rng.choice([-1, 1], (INPUTS, UNITS)) * rng.uniform(0.8, 1, (INPUTS, UNITS))
    kernel = kernel.astype(np.float32)
    dense = QuantizedDense(kernel, np.zeros(UNITS, np.float32), lowest=None if signed else 0.0)
    highest = 127 if signed else 255
    numbers = rng.choice([-127, 127] if signed else [200, 255], (tokens, INPUTS))

    def product(inputs):
        inputs = quantize(inputs, tf.constant(127.0)) if signed else tf.bitcast(tf.cast(inputs, tf.uint8), tf.quint8)
        return dense(inputs, tf.constant(float(highest)), tf.float32)

    found = tf.function(product, autograph=False)(tf.constant(numbers, tf.float32)).numpy()
    exact = numbers @ dense.kernel.numpy().astype(np.int64) * (dense.range / 127)
    return float(np.abs(found - exact).max() / np.abs(exact).max())


if __name__ == "__main__":
    for name, ranges in (("int8", int8.largest_pairs), ("wide", widest)):
        int8.largest_pairs = ranges
        for kind in ("signed", "unsigned"):
            print(f"{name}/{kind} {max(largest_error(kind == 'signed', tokens) for tokens in (1, 7, 70)):.3g}")
