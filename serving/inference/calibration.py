"""Calibrates int8: measures the largest absolute input of every matrix product on typical rows."""

from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import DepthLoop
from serving.inference.int8 import Int8Kernels, QuantizedProjection, check_int8, quantize_half
from serving.inference.kernels import RECORDED, Recorder, largest_of
from serving.inference.rows import FlatBatch

# Random rows x tokens, where nothing better is given, and how much larger the ranges are made then.
_RANDOM_SHAPE, _RANDOM_MARGIN = (16, 64), 1.1


def quantize_encoder(encoder: Any, calibration: tuple | None) -> Int8Kernels:
    """Quantizes the matrix products of a float32 encoder in place; returns kernels that use them.

    This includes the embeddings' projection, whose float32 result depends on the number of tokens without AVX-512.
    """
    config, embeddings = encoder.config, encoder.embeddings
    check_int8(config.hidden_act, config.feed_forward)
    margin = 1.0 if calibration is not None else _RANDOM_MARGIN
    ids, lengths = _random_rows(config, encoder.settings.longest) if calibration is None else calibration
    ids = tf.constant(ids, tf.int32)
    batch = FlatBatch(tf.sequence_mask(lengths, ids.shape[1]), config, skip_padding=True)
    count, projection, largest = tf.size(batch.cells), embeddings.projection, list[float]()

    def noted(inputs: Tensor) -> Tensor:
        largest.append(largest_of(inputs[:count]))
        return projection(inputs)

    embeddings.projection = projection and noted
    hidden = embeddings(ids, None, batch.computed)
    embeddings.projection = projection and QuantizedProjection(projection, largest[0] * margin)
    recorder = Recorder(encoder.kernels, count)
    runner = encoder.runner(encoder.rows(batch, {}, recorder), recorder)
    # Every step that there may be, one by one.
    DepthLoop()(runner, runner.begin(hidden))
    ranges = margin * np.array(
        [[recorder.largest.get((step, name), 0) for name in RECORDED] for step in range(config.num_steps)], np.float32
    )
    for halves, columns in ((encoder.attentions, ranges[:, :2]), (encoder.feed_forwards, ranges[:, 2:])):
        for half in halves:
            quantize_half(half, columns, config.hidden_act)
    return Int8Kernels(config, encoder.attentions, encoder.feed_forwards)


def _random_rows(config: AlbertConfig, longest: int) -> tuple[np.ndarray, np.ndarray]:
    rows, length = _RANDOM_SHAPE
    length = min(length, longest)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (rows, length))
    return ids, np.full(rows, length, np.int32)
