"""The 8-bit encoder's ranges: how large the inputs of every product become on rows like those to come."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.layers.depth import plan, segments
from albert_tf.layers.encoder import AlbertEncoder
from serving.inference.dense import Dense
from serving.inference.int8 import QuantizedAttention, QuantizedFeedForward, QuantizedProjection, check_int8
from serving.inference.layers import replaced
from serving.inference.rows import FlatBatch

# Random rows x tokens, where nothing better is given, and how much larger the ranges are made then.
_RANDOM_SHAPE, _RANDOM_MARGIN = (16, 64), 1.1


class Recorder:
    """A dense layer that notes the largest absolute value that comes in with its first `count` tokens.

    What numbers of tokens are rounded up by comes after these, and counts nothing: nobody reads it.
    """

    def __init__(self, layer: Dense, count: tf.Tensor):
        self.layer, self.count, self.largest = layer, count, 1e-6

    def __call__(self, inputs: tf.Tensor, *others) -> tf.Tensor:
        """Computes what the layer computes."""
        self.largest = max(self.largest, float(tf.reduce_max(tf.abs(inputs[: self.count]))))
        return self.layer(inputs, *others)


def quantize_encoder(twin, encoder: AlbertEncoder, calibration: tuple | None, vnni: bool) -> None:
    """Puts 8-bit halves in the place of a float32 twin's, and an 8-bit projection into its embeddings.

    The projection too: without AVX-512 the last bits of a float32 product depend on the number of tokens.

    Args:
        twin: The InferenceEncoder, whose parts are all in float32.
        encoder: The Keras encoder.
        calibration: input_ids int32 [rows, length] and lengths int32 [rows]; random ids where None.
        vnni: Whether only CPUs with VNNI will run it.

    Raises:
        UserError: 8-bit products cannot be with this activation function.
    """
    config = encoder.config
    check_int8(config.hidden_act, config.feed_forward)
    margin = 1.0 if calibration is not None else _RANDOM_MARGIN
    ids, lengths = _random_rows(config, twin.max_seq_length) if calibration is None else calibration
    ids = tf.constant(ids, tf.int32)
    batch = FlatBatch(tf.sequence_mask(lengths, ids.shape[1]), config, skip_padding=True)
    with _recorded([twin.embeddings], batch) as recorders:
        hidden = twin.embeddings(ids, None, batch.computed)
    for recorder in recorders:
        twin.embeddings.projection = QuantizedProjection(recorder.layer, recorder.largest * margin, vnni)
    ranges = _ranges(twin, hidden, batch) * margin
    twin.attentions = [
        QuantizedAttention(half, ranges[:, :2], vnni, own.relative)
        for half, own in zip(encoder.halves_of("attention"), twin.attentions)
    ]
    twin.feed_forwards = [QuantizedFeedForward(half, ranges[:, 2:], vnni) for half in encoder.halves_of("feed_forward")]


def _recorded(parts: list, batch: FlatBatch) -> Any:
    return replaced(parts, Dense, functools.partial(Recorder, count=tf.size(batch.cells)))


def _ranges(twin, hidden: tf.Tensor, batch: FlatBatch) -> np.ndarray:
    """Runs every step in float32.

    Returns:
        float32 [steps, 4], the largest inputs of query_key_value, attention's output, intermediate and output.
    """
    if twin.equilibrium is not None:
        return _ranges_of_equilibrium(twin, hidden, batch)
    table, state = [], twin.start(hidden)
    for step in range(twin.config.num_steps):
        state, largest = _step(twin, step, state, batch)
        table.append(largest)
    return np.array(table, np.float32)


def _ranges_of_equilibrium(twin, hidden: tf.Tensor, batch: FlatBatch) -> np.ndarray:
    """As `_ranges`; the steps that repeat have one range for all times, since a fixed point is of one function."""
    table, state, first = np.zeros((twin.config.num_steps, 4), np.float32), hidden, 0
    for place, run in enumerate(segments(twin.config)):
        is_solved, x = place == twin.equilibrium.place, state
        for _ in range(twin.equilibrium.solver.max_steps if is_solved else 1):
            state = twin.equilibrium.injected(state, x) if is_solved else state
            for step in range(first, first + len(run.steps)):
                state, largest = _step(twin, step, state, batch)
                table[step] = np.maximum(table[step], largest)
        first += run.repeats * len(run.steps)
    return table


def _step(twin, step: int, state: Any, batch: FlatBatch) -> tuple[Any, list[float]]:
    which = plan(twin.config)[step]
    with _recorded([twin.attentions[which.attention], twin.feed_forwards[which.feed_forward]], batch) as recorders:
        state = twin.apply(which, step, state, batch.rows)
    # A gate's inputs are those of intermediate.
    return state, [recorder.largest for recorder in (*recorders[:3], recorders[-1])]


def _random_rows(config, longest: int) -> tuple[np.ndarray, np.ndarray]:
    rows, length = _RANDOM_SHAPE
    length = min(length, longest)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (rows, length))
    return ids, np.full(rows, length, np.int32)
