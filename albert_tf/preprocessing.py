"""Texts as features: what a notebook gives `fit` and `predict`, and what a tf.data pipeline maps."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from albert_tf.tasks.rows import Rows, encode, frame, padded_length
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

# [CLS] text [SEP] text [SEP].
_LEAST = 5


class Preprocessor:
    """Callable that makes `input_ids`, `input_mask` and `segment_ids`, int32 [batch, length], of texts.

    Each row is [CLS] text [SEP], or [CLS] first [SEP] second [SEP], cut at the end of the longer text. A list of
    strings is tokenized at once, and padded to a length not far above the longest row's; a string tensor, as in
    `dataset.map`, is tokenized in the graph, and padded to the longest row's length.

    Args:
        tokenizer: of the model.
        max_seq_length: of the longest row, in tokens.

    Raises:
        UserError: rows too short for two texts.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int = 512):
        if max_seq_length < _LEAST:
            raise UserError(f"max_seq_length={max_seq_length} leaves no room for text; give {_LEAST} or more")
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length

    def __call__(self, texts: Any, seconds: Any = None) -> dict[str, Any]:
        """Features of texts, or of pairs.

        Args:
            texts: strings: a list, an array or a tensor [batch].
            seconds: the other text of each pair, likewise.

        Raises:
            UserError: a lone string, anything but strings, or unequal numbers of texts.
        """
        if _is_symbolic(texts):
            return self.in_graph(texts, seconds)
        rows = self.rows(texts, seconds)
        indices = list(range(len(rows)))
        return rows.batch(indices, padded_length(int(rows.lengths.max(initial=1)), self.max_seq_length))[0]

    def rows(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> Rows:
        """The same, each row as long as it is."""
        firsts = encode(self.tokenizer, strings(texts, "texts"))
        others = [None] * len(firsts)
        if seconds is not None:
            others = encode(self.tokenizer, strings(seconds, "seconds"))
        if len(firsts) != len(others):
            raise UserError(f"{len(firsts)} texts but {len(others)} second ones; give each a partner")
        framed = [frame(self.tokenizer, *pair, self.max_seq_length) for pair in zip(firsts, others)]
        tokens = {"input_ids": [ids for ids, _ in framed], "input_mask": [np.ones_like(ids) for ids, _ in framed]}
        return Rows(tokens | {"segment_ids": [segments for _, segments in framed]}, {}, self.tokenizer.pad_id)

    def in_graph(self, texts, seconds=None) -> dict[str, Any]:
        """Features of string tensors [batch], made by TensorFlow operations alone."""
        import tensorflow as tf

        first, second = self._graph_tokenizer(texts), None
        if seconds is None:
            first = first[:, : self.max_seq_length - 2]
        else:
            second = self._graph_tokenizer(seconds)
            # Both keep at least half of the room; a short one leaves the rest to the other, as in `frame`.
            room, lengths = self.max_seq_length - 3, [tf.cast(one.row_lengths(), tf.int32) for one in (first, second)]
            kept = tf.minimum(lengths[1], tf.maximum(room // 2, room - lengths[0]))
            first = _cut(first, tf.minimum(lengths[0], room - kept))
            second = _cut(second, kept)
        start, end = (tf.fill([first.nrows(), 1], np.int32(i)) for i in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        ids = tf.concat([start, first, end], axis=1)
        segments = tf.zeros_like(ids)
        if second is not None:
            second = tf.concat([second, end], axis=1)
            ids, segments = tf.concat([ids, second], axis=1), tf.concat([segments, tf.ones_like(second)], axis=1)
        return {
            "input_ids": ids.to_tensor(self.tokenizer.pad_id),
            "input_mask": tf.ones_like(ids).to_tensor(),
            "segment_ids": segments.to_tensor(),
        }

    @cached_property
    def _graph_tokenizer(self):
        import tensorflow as tf

        # Its tables must outlive the graph of one `map`.
        with tf.init_scope():
            return self.tokenizer.in_graph()


def _is_symbolic(texts: Any) -> bool:
    return hasattr(texts, "dtype") and hasattr(texts, "graph") and not hasattr(texts, "numpy")


def strings(texts: Any, name: str) -> list[str]:
    """A list of str of anything that holds strings; raises UserError for what does not, and calls it `name`."""
    if isinstance(texts, (str, bytes)):
        raise UserError(f"{name} is one string; give a list of strings: [{texts!r}]")
    if hasattr(texts, "numpy"):
        texts = texts.numpy()
    strings = [text.decode("utf-8") if isinstance(text, bytes) else text for text in texts]
    wrong = next((text for text in strings if not isinstance(text, str)), None)
    if wrong is not None:
        raise UserError(f"{name} must be strings, not {wrong!r}, a {type(wrong).__name__}")
    return strings


def _cut(tokens, lengths):
    """Each row's first `lengths[row]` tokens."""
    import tensorflow as tf

    return tf.RaggedTensor.from_tensor(tokens.to_tensor(), lengths=lengths)
