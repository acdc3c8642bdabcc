"""Input formats of signatures: named tensors, and their conversion to a batch.

A batching server pads a row with its first element, so repeated [CLS] at the end of ids is padding. In models with
[CLS] last, rows may also be padded in front, and always have segments.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.base import Tensor
from tfrecords.reading.framing import TokenBatch

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
Tensors = dict[str, Tensor]
Specs = dict[str, tf.TensorSpec]


class ExportSignature(NamedTuple):
    """A function that a server calls by name, with Predict or with the RPC named by `method`."""

    function: Callable[..., Tensors]
    inputs: Specs
    method: str = PREDICT

    def describe(self) -> dict[str, str]:
        """Returns each input's type as text, such as "int32 [any, any]"."""
        return {
            name: f"{spec.dtype.name} [{', '.join(map(str, spec.shape.as_list()))}]".replace("None", "any")
            for name, spec in self.inputs.items()
        }

    def concrete(self):
        return tf.function(self.function, autograph=False).get_concrete_function(**self.inputs)


class InputFormat(NamedTuple):
    """The inputs of a signature; `read` converts them to what an answer function takes, usually a TokenBatch."""

    inputs: Specs
    read: Callable[..., Any]

    def to(
        self,
        answer: Callable[..., Tensors],
        more: Specs | None = None,
        method: str = PREDICT,
    ) -> ExportSignature:
        """Returns a signature that calls `answer` with the result of `read` and the inputs `more`."""

        def function(**inputs):
            batch = self.read(**{name: inputs.pop(name) for name in self.inputs})
            return answer(batch, **inputs)

        return ExportSignature(function, self.inputs | (more or {}), method)


def specs(*names: str, dtype: tf.DType = tf.string, shape: tuple = (None,)) -> Specs:
    """Returns tensor specs by name, all of one dtype and shape."""
    return {name: tf.TensorSpec(shape, dtype, name=name) for name in names}


def batch_of_lengths(input_ids: Tensor, lengths: Tensor, segment_ids: Tensor | None = None) -> TokenBatch:
    """Converts ids [batch, length] and the rows' numbers of tokens, int [batch], to a batch.

    It fails for a number below 1 or above `length`.
    """
    input_ids = _checked(input_ids, lengths=lengths, segment_ids=segment_ids)
    are_right = tf.reduce_all((lengths >= 1) & (lengths <= tf.shape(input_ids)[1]))
    message = (
        "lengths must be from 1 to the columns of input_ids: no row is without a single token, or ends behind them"
    )
    with tf.control_dependencies([tf.debugging.Assert(are_right, [message])]):
        input_ids = tf.identity(input_ids)
    return _masked(input_ids, tf.sequence_mask(lengths, tf.shape(input_ids)[1]), segment_ids)


def batch_of_mask(
    input_ids: Tensor, input_mask: Tensor, segment_ids: Tensor, padded_in_front: bool = False
) -> TokenBatch:
    """Converts ids and a mask [batch, length] to a batch whose mask has no holes.

    A row ends at its mask's first 0, or before repetitions of its first id. With `padded_in_front`, zeros may precede.
    """
    input_ids = _checked(input_ids, input_mask=input_mask, segment_ids=segment_ids)
    positions = tf.range(tf.shape(input_ids)[1])
    last = tf.reduce_max(tf.where(input_ids != input_ids[:, :1], positions, 0), axis=1, keepdims=True)
    mask = input_mask > 0
    mask = _first_run(mask) if padded_in_front else tf.math.cumprod(tf.cast(mask, tf.int32), axis=1) > 0
    return _masked(input_ids, mask & (positions <= last), segment_ids, padded_in_front)


def batch_of_examples(inputs: Tensor, padded_in_front: bool = False) -> TokenBatch:
    """Parses serialized tf.Examples with int64 lists input_ids and, optionally, input_mask and segment_ids."""
    names = ("input_ids", "input_mask", "segment_ids")
    features = tf.io.parse_example(inputs, {name: tf.io.RaggedFeature(tf.int64) for name in names})
    tf.debugging.assert_positive(features["input_ids"].row_lengths(), "a tf.Example has no input_ids")
    size = features["input_ids"].bounding_shape()
    ids, mask, segments = (features[name].to_tensor(shape=size) for name in names)
    inside = tf.sequence_mask(features["input_ids"].row_lengths(), size[1])
    without_mask = (features["input_mask"].row_lengths() == 0)[:, tf.newaxis]
    mask = inside & (without_mask | (mask > 0))
    return _masked(ids, _first_run(mask) if padded_in_front else mask, segments, padded_in_front)


def _checked(input_ids: Tensor, **others: Tensor | None) -> Tensor:
    sizes = tf.shape(input_ids)
    checks = [
        tf.debugging.assert_equal(tf.shape(other), sizes[: other.shape.rank], f"{name} and input_ids differ in size")
        for name, other in others.items()
        if other is not None
    ]
    with tf.control_dependencies(checks):
        return tf.identity(input_ids)


def _first_run(mask: Tensor) -> Tensor:
    begun = tf.math.cumsum(tf.cast(mask, tf.int32), axis=1) > 0
    return begun & (tf.math.cumsum(tf.cast(begun & ~mask, tf.int32), axis=1) == 0)


def _masked(input_ids: Tensor, mask: Tensor, segment_ids: Tensor | None, padded_in_front: bool = False) -> TokenBatch:
    shape = tf.shape(input_ids)
    has_columns = tf.debugging.assert_less_equal(
        tf.minimum(shape[0], 1), shape[1], "input_ids has rows without a single token"
    )
    with tf.control_dependencies([has_columns]):
        positions = tf.range(shape[1])
    is_first = positions == 0
    mask |= is_first & ~tf.reduce_any(mask, axis=1, keepdims=True) if padded_in_front else is_first
    width = tf.maximum(tf.reduce_max(tf.where(mask, positions + 1, 1)), 1)
    mask = tf.cast(mask[:, :width], tf.int32)
    segments = tf.zeros_like(mask) if segment_ids is None else tf.cast(segment_ids[:, :width], tf.int32) * mask
    return TokenBatch(tf.cast(input_ids[:, :width], tf.int32) * mask, mask, segments)


_MATRIX = (None, None)
_LENGTHS = specs("input_ids", dtype=tf.int32, shape=_MATRIX) | specs("lengths", dtype=tf.int32)
_MASK = ("input_ids", "input_mask", "segment_ids")
EXAMPLES = specs("inputs")
_STRING = tf.io.FixedLenFeature([], tf.string)


class InputFormats(NamedTuple):
    """The formats of one kind of input, ids or texts; `default` is `pair` for models of pairs, else `single`.

    Of ids, `pair` has segments; `masked` (int32) and `int64` have a mask, not lengths.
    """

    default: InputFormat
    single: InputFormat
    pair: InputFormat
    examples: InputFormat
    masked: InputFormat | None = None
    int64: InputFormat | None = None


def ids_formats(last_token: bool, takes_pairs: bool) -> InputFormats:
    """Returns the formats of token ids; `last_token`: whether [CLS] is last."""
    pair = InputFormat(_LENGTHS | specs("segment_ids", dtype=tf.int32, shape=_MATRIX), batch_of_lengths)
    by_mask = functools.partial(batch_of_mask, padded_in_front=last_token)
    masked, int64 = (InputFormat(specs(*_MASK, dtype=dtype, shape=_MATRIX), by_mask) for dtype in (tf.int32, tf.int64))
    examples = InputFormat(EXAMPLES, functools.partial(batch_of_examples, padded_in_front=last_token))
    single = pair if last_token else InputFormat(_LENGTHS, batch_of_lengths)
    return InputFormats(pair if takes_pairs else single, single, pair, examples, masked, int64)


def examples_of_strings(strings: InputFormat) -> InputFormat:
    """Returns a format that reads the same strings from tf.Examples."""

    def read(inputs: Tensor):
        return strings.read(**tf.io.parse_example(inputs, dict.fromkeys(strings.inputs, _STRING)))

    return InputFormat(EXAMPLES, read)
