"""How large the inputs of every product become, step by step: the ranges of the 8-bit encoder."""

import numpy as np
import tensorflow as tf

from albert_tf.layers.depth import plan
from serving.inference.block import Attention, FeedForward
from serving.inference.weights import Dense


class Recorder:
    """A dense layer that writes down the largest absolute value that comes in."""

    def __init__(self, layer: Dense):
        self.layer, self.largest = layer, 0.0

    def __call__(self, inputs: tf.Tensor, *others) -> tf.Tensor:
        self.largest = max(self.largest, float(tf.reduce_max(tf.abs(inputs))))
        return self.layer(inputs, *others)


def find_ranges(encoder, attentions, feed_forwards, hidden: tf.Tensor, rows) -> tuple[np.ndarray, np.ndarray]:
    """Runs every step in float32 on some tokens.

    Args:
        encoder: the Keras encoder.
        attentions, feed_forwards: its halves, as Attention and FeedForward in float32.
        hidden: float32 [tokens, hidden_size], the first step's input.
        rows: which tokens are of one row.

    Returns:
        float32 [steps, 2] each, for attention (inputs of query_key_value and output) and feed-forward (intermediate
        and output).
    """
    found = []
    for step in plan(encoder.config):
        halves: list[Attention | FeedForward] = [attentions[step.attention], feed_forwards[step.feed_forward]]
        names = ("query_key_value", "output"), ("intermediate", "output")
        recorders = []
        for half, parts in zip(halves, names, strict=True):
            kept = {name: getattr(half, name) for name in parts}
            for name in parts:
                recorders.append(Recorder(kept[name]))
                setattr(half, name, recorders[-1])
            hidden = half(hidden, rows, 0) if isinstance(half, Attention) else half(hidden, 0)
            for name in parts:
                setattr(half, name, kept[name])
        found.append([max(recorder.largest, 1e-6) for recorder in recorders])
    table = np.array(found, np.float32)
    return table[:, :2].copy(), table[:, 2:].copy()
