"""The content of a LiteRT (TensorFlow Lite) file: a model's answers in that runtime's own operations."""

import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers.block import MASKED_SCORE
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.exportable import ExportOptions, make_exportable
from serving.inference import InferenceEncoder, InferenceOptions
from serving.inference.attention import Reach, Rows, attend_heads, rotation
from tfrecords.base.errors import UserError
from tfrecords.framing import TokenBatch

_KINDS = (AlbertClassifier, AlbertRegressor, AlbertSentenceEmbedder, AlbertEncoder, AlbertPretrainer)


class Rectangle(Rows):
    """A padded batch and attention over all of it, in LiteRT's own ops, in place of FlatBatch and TokenRows.

    Args:
        mask: bool [batch, length], the real tokens.
        config: of the encoder.
    """

    def __init__(self, mask: tf.Tensor, config: AlbertConfig):
        self.config, self.rows = config, self
        self.batch, self.length = tf.unstack(tf.shape(mask))
        self.bias = tf.where(mask, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis]

    def attend(self, query_key_value: tf.Tensor, reach: Reach) -> tf.Tensor:
        """Attends everywhere; `convert` refuses what would be local, or score distances."""
        heads, size = self.config.num_attention_heads, self.config.head_size
        by_head = tf.reshape(query_key_value, [self.batch, self.length, 3 * heads, size])
        query, key, value = tf.split(tf.transpose(by_head, [0, 2, 1, 3]), 3, axis=1)
        if self.config.position_type == "rotary":
            query, key = self._turn(query), self._turn(key)
        if reach.only_summary:
            query = query[:, :, :1]
        contexts = attend_heads(query, key, value, lambda: self.bias, None, self.config, reach)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def _turn(self, heads: tf.Tensor) -> tf.Tensor:
        """As rows.py does by complex numbers, which LiteRT has not."""
        cosines, sines = rotation(tf.range(self.length), self.config)
        pairs = tf.reshape(heads, [-1, self.length, self.config.head_size // 2, 2])
        first, second = tf.unstack(pairs, axis=-1)
        turned = tf.stack([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
        return tf.reshape(turned, [self.batch, -1, self.length, self.config.head_size])

    def summary_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        return self.rectangle(hidden)[:, 0]

    def restore(self, of_rows: tf.Tensor) -> tf.Tensor:
        return of_rows

    def rectangle(self, hidden: tf.Tensor) -> tf.Tensor:
        return tf.reshape(hidden, [self.batch, self.length, self.config.hidden_size])


class LiteRtEncoder(InferenceEncoder):
    """The encoder in float32, one rectangle a batch."""

    def _by_size(self, answer: Callable, *inputs):
        return answer(*self._begin(*inputs))

    def _begin(self, input_ids, lengths, segment_ids, input_mask, *, one_row=False):
        rectangle = Rectangle(tf.cast(input_mask, tf.bool), self.config)
        cells = tf.range(rectangle.batch * rectangle.length)
        return rectangle, self.embeddings(input_ids, segment_ids, cells)


def real_tokens(input_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Says where tokens are, bool [batch, length]; a row's first position is always one."""
    positions = tf.range(tf.shape(input_ids)[1])
    return (positions < lengths[:, tf.newaxis]) | (positions == 0)


def convert(model: keras.Model, compute: str = "float32", length: int | None = None, pairs: bool = False) -> bytes:
    """Makes the file's content: answers to int32 input_ids [1, length] and lengths [1], named as exports name them.

    Args:
        model: What is written.
        compute: "float32" or "int8".
        length: The length of every row; None: each call chooses its own.
        pairs: Whether segment_ids is an input too.

    Raises:
        UserError: the model has a head that is not written for LiteRT.
    """
    if type(model) not in _KINDS:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise UserError(f"a {type(model).__name__} cannot be written for LiteRT; these can: {known}")
    config = getattr(model, "encoder", model).config
    if config.position_type == "relative":
        raise UserError("position_type 'relative' (XLNet) is not written for LiteRT; export it with serving.export")
    encoder = LiteRtEncoder(getattr(model, "encoder", model), InferenceOptions())
    if encoder.equilibrium is not None:
        raise UserError("a walk to an equilibrium is not written for LiteRT; export it with serving.export")
    for field in ("hyper_connections", "halting", "attention_window"):
        if getattr(encoder.config, field) not in (0, "none"):
            raise UserError(f"{field} is not written for LiteRT; export it with serving.export")
    exportable = make_exportable(model, ExportOptions(encoder.config.max_seq_length), encoder)

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
    """Asks the file with int32 arrays that have an axis of rows in front, a row at a time."""
    with warnings.catch_warnings():
        # tf.lite announces at every use that it will move to a package of its own.
        warnings.simplefilter("ignore")
        runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    rows = range(len(inputs["lengths"]))
    answers = [runner(**{name: values[row : row + 1] for name, values in inputs.items()}) for row in rows]
    return {name: np.concatenate([one[name] for one in answers]) for name in answers[0]}
