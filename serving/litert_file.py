"""Builds a LiteRT (TensorFlow Lite) file with that runtime's own operations."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import setting_of
from albert_tf.layers.block import MASKED_SCORE, Step
from albert_tf.loading.load import load
from serving.check import TOLERANCES, compare, expected_answers
from serving.exportable import ExportOptions, make_exportable
from serving.exportable.base import KINDS
from serving.inference import InferenceEncoder, InferenceOptions
from serving.inference.rows import BatchRows, attend_from_first
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.framing import TokenBatch

if TYPE_CHECKING:
    from serving.litert import LiteRtSettings

_CHECKED_LENGTH = 32


class Rectangle(BatchRows):
    """A padded batch with full attention, in LiteRT's own ops."""

    batch: Any

    def token_positions(self) -> Tensor:
        return tf.range(self.batch.length)[tf.newaxis]

    def of_batch(self, values: Tensor) -> Tensor:
        return values

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        heads, size = self.config.num_attention_heads, self.config.head_size
        by_head = tf.reshape(projected, [self.batch.size, self.batch.length, 3 * heads, size])
        query, key, value = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        contexts = attend_from_first(self, self.batch.bias, query, key, value, step)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return self.rectangle(hidden)[:, 0]


class PaddedBatch:
    """Replaces FlatBatch, and computes padding; `mask` is bool [batch, length]."""

    def __init__(self, mask: Tensor):
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.computed = tf.range(self.size * self.length)
        self.bias = tf.where(mask, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis]

    def restore(self, of_rows: Tensor) -> Tensor:
        return of_rows

    def rectangle(self, hidden: Tensor) -> Tensor:
        return tf.reshape(hidden, [self.size, self.length, *hidden.shape[1:]])


class LiteRtEncoder(InferenceEncoder):
    """The encoder of LiteRT files: float32, and padding is computed too."""

    is_plain, rows_class = True, Rectangle

    def _by_size(self, answer: Callable, *inputs):
        return answer(*self._begin(*inputs))

    def _batch(self, input_ids, lengths, input_mask, *others) -> PaddedBatch:
        return PaddedBatch(tf.cast(input_mask, tf.bool))


def real_tokens(input_ids: Tensor, lengths: Tensor) -> Tensor:
    """Returns the mask of real tokens, bool [batch, length]; each row's first token always counts."""
    positions = tf.range(tf.shape(input_ids)[1])
    return (positions < lengths[:, tf.newaxis]) | (positions == 0)


def convert(model: keras.Model, compute: str = "float32", length: int | None = None, pairs: bool = False) -> bytes:
    """Returns a file; it takes int32 input_ids [1, length] and lengths [1], and returns exports' numeric outputs.

    `compute` is "float32" or "int8"; `length` is by default variable; `pairs` adds the input segment_ids.

    Raises UserError if LiteRT does not support the model.
    """
    kinds = [of for of, kind in KINDS.items() if kind.for_litert]
    if type(model) not in kinds:
        known = ", ".join(kind.__name__ for kind in kinds)
        raise UserError(f"a {type(model).__name__} cannot be written for LiteRT; these can: {known}")
    source = encoder_of(model)
    config = source.config
    for extension in config.extensions:
        if not extension.for_litert:
            raise UserError(f"{setting_of(config, extension)} is not written for LiteRT; export it with serving.export")
    encoder = LiteRtEncoder(source, InferenceOptions())
    exportable = make_exportable(model, ExportOptions(config.max_seq_length), encoder)

    def answer(input_ids, lengths, segment_ids=None):
        mask = tf.cast(real_tokens(input_ids, lengths), tf.int32)
        segments = tf.zeros_like(input_ids) if segment_ids is None else segment_ids
        answers = exportable.answer(TokenBatch(input_ids, mask, segments))
        return {name: value for name, value in answers.items() if value.dtype != tf.string}

    shapes = {"input_ids": [1, length], "lengths": [1]} | ({"segment_ids": [1, length]} if pairs else {})
    inputs = {name: tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()}
    function = tf.function(answer, autograph=False).get_concrete_function(**inputs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], exportable)
    if compute == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def run_file(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs the file on int32 arrays [rows, ...], row by row."""
    with warnings.catch_warnings():
        # tf.lite warns at every use that it will move to another package.
        warnings.simplefilter("ignore")
        runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    rows = range(len(inputs["lengths"]))
    answers = [runner(**{name: values[row : row + 1] for name, values in inputs.items()}) for row in rows]
    return {name: np.concatenate([one[name] for one in answers]) for name in answers[0]}


def load_and_write(settings: "LiteRtSettings") -> dict[str, float]:
    """Writes a file for `serving.litert.write`, which has checked the paths."""
    output, length = Path(settings.output), settings.max_seq_length
    files.make_output_dir(output.parent)
    loaded = load(settings.model)
    config = encoder_of(loaded.model).config
    limit = config.max_seq_length
    if length > limit:
        raise UserError(f"--max_seq_length={length} must be from 1 to the {limit} tokens that the model takes, or 0")
    pairs = len(loaded.task.get("inputs", [])) == 2
    inputs = _check_inputs(config, length or min(limit, _CHECKED_LENGTH), pairs)
    with files.replacing(output) as temporary:
        temporary.write_bytes(convert(loaded.model, settings.compute, length or None, pairs))
        tolerance = max(TOLERANCES[settings.compute], TOLERANCES[loaded.model.compute_dtype])
        return compare(expected_answers(loaded.model, inputs), run_file(temporary, inputs), tolerance)


def _check_inputs(config: AlbertConfig, length: int, pairs: bool) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, length), np.int32)
    inputs = {"input_ids": ids, "lengths": np.array([length, (length + 1) // 2], np.int32)}
    return inputs | ({"segment_ids": ids % config.type_vocab_size} if pairs else {})
