"""Prints how far 8-bit products are from those of whole numbers, relative to the largest: `python -m` this module.

Extreme inputs and weights that are wide, neighbours of one sign among them: what saturates where anything does.
"""

import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)

import numpy as np
import tensorflow as tf

from serving.inference.int8 import QuantizedDense, quantize

INPUTS, UNITS = 130, 48


def largest_error(vnni: bool, signed: bool, tokens: int) -> float:
    rng = np.random.default_rng(tokens)
    kernel = rng.choice([-1, 1], (INPUTS, UNITS)) * rng.uniform(0.8, 1, (INPUTS, UNITS))
    kernel = kernel.astype(np.float32)
    dense = QuantizedDense(kernel, np.zeros(UNITS, np.float32), vnni, lowest=None if signed else 0.0)
    highest = 127 if signed else 255
    numbers = rng.choice([-127, 127] if signed else [200, 255], (tokens, INPUTS))

    def product(inputs):
        inputs = quantize(inputs, tf.constant(127.0)) if signed else tf.bitcast(tf.cast(inputs, tf.uint8), tf.quint8)
        return dense(inputs, tf.constant(float(highest)), tf.float32)

    found = tf.function(product, autograph=False)(tf.constant(numbers, tf.float32)).numpy()
    exact = numbers @ dense.kernel.numpy().astype(np.int64) * (dense.range / 127)
    return float(np.abs(found - exact).max() / np.abs(exact).max())


if __name__ == "__main__":
    for compute in ("int8", "int8_vnni"):
        for kind in ("signed", "unsigned"):
            errors = [largest_error(compute == "int8_vnni", kind == "signed", tokens) for tokens in (1, 7, 70)]
            print(f"{compute}/{kind} {max(errors):.3g}")
