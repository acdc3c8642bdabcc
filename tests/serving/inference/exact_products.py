"""How far oneDNN's 8-bit products are from products of the same integers without rounding of their sums.

`python -m` this module prints the distance relative to the largest: of extreme inputs and wide weights, neighbours of
one sign among them, which saturate where anything does; "wide" without int8's limit on their sums.
"""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

import numpy as np
import tensorflow as tf

from serving.inference import int8
from serving.inference.int8 import QuantizedDense, quantize

INPUTS, UNITS = 130, 48


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
