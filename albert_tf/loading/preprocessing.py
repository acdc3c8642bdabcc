"""Turns texts into features for `fit`, `predict` and tf.data."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from albert_tf.tasks.rows import FeatureRows, padded_length, text_rows
from tfrecords.answers.texts import columns_of
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import TextFramer
from tfrecords.tokenizers.base import Tokenizer

# [CLS] text [SEP] text [SEP].
_LEAST = 5
FEATURES = ("input_ids", "input_mask", "segment_ids")


class Preprocessor:
    """Callable that turns texts into `input_ids`, `input_mask` and `segment_ids`, int32 [batch, length].

    Each row is [CLS] text [SEP], or [CLS] first [SEP] second [SEP]; if it is too long, the longer text is cut at its
    end. A list of strings is padded to little more than its longest row; a string tensor (in `dataset.map`) is
    tokenized in the graph and padded to its longest row.

    Args:
        tokenizer: the model's tokenizer.
        max_seq_length: maximal tokens of a row.
        features: names of the features to return; pairs need segment_ids.

    Raises:
        UserError: rows are too short for two texts, or a feature is unknown.

    Example:
        >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
        >>> pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film".replace(" ", "\\n")
        >>> preprocess = Preprocessor(WordPieceTokenizer(pieces.encode()), max_seq_length=8)
        >>> preprocess(["A good film", "film"])["input_ids"].tolist()
        [[2, 5, 6, 7, 3, 0, 0, 0], [2, 7, 3, 0, 0, 0, 0, 0]]
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int = 512, features: Sequence[str] = FEATURES):
        if isinstance(features, str) or not features or not set(features) <= set(FEATURES):
            raise UserError(f"features={features!r} must be a list of some of {', '.join(FEATURES)}")
        self.features = tuple(features)
        if max_seq_length < _LEAST:
            raise UserError(f"max_seq_length={max_seq_length} leaves no room for text; give {_LEAST} or more")
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length

    def __call__(self, texts: Any, seconds: Any = None) -> dict[str, Any]:
        """Returns the features of texts, or of pairs with `seconds`.

        `texts` and `seconds` are equally long lists, arrays or tensors [batch] of strings.
        """
        if seconds is not None and "segment_ids" not in self.features:
            raise UserError("of pairs segment_ids say whose a token is; ask for them too, or give single texts")
        if _is_symbolic(texts):
            given = self._in_graph(texts, seconds)
        else:
            rows = self.rows(texts, seconds)
            indices = list(range(len(rows)))
            given = rows.batch(indices, padded_length(int(rows.lengths.max(initial=1)), self.max_seq_length))[0]
        return {name: given[name] for name in self.features}

    def rows(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> FeatureRows:
        """Returns the features of texts or pairs, without padding."""
        return text_rows(self.tokenizer, columns_of(texts, seconds), self.max_seq_length)

    def _in_graph(self, texts: tf.Tensor, seconds: tf.Tensor | None) -> dict[str, tf.Tensor]:
        texts = (texts,) if seconds is None else (texts, seconds)
        batch = self._framer.frame(*self._framer.tokenize(*texts)).padded()
        return {"input_ids": batch.input_ids, "input_mask": batch.mask, "segment_ids": batch.segment_ids}

    @cached_property
    def _framer(self) -> TextFramer:
        # Its tables must outlive the graph of one `map`.
        with tf.init_scope():
            return TextFramer(self.tokenizer, self.max_seq_length)


def _is_symbolic(texts: Any) -> bool:
    return hasattr(texts, "dtype") and hasattr(texts, "graph") and not hasattr(texts, "numpy")
