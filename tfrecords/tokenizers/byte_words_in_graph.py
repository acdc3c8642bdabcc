r"""Marks the ends of byte-level BPE's words by TensorFlow's regular expressions (RE2).

RE2 lacks the look-ahead of GPT-2's `\s+(?!\S)`, by which the last of several spaces belongs to the next word; a mark
before such a space has the same effect. UTF-8 never has the mark's byte.
"""

import tensorflow as tf

from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, re2_class

MARK = b"\xff"
_LETTERS, _NUMBERS, _SPACES = map(re2_class, (LETTER, NUMBER, SPACE))
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTERS}]+| ?[{_NUMBERS}]+| ?[^{_SPACES}{_LETTERS}{_NUMBERS}]+|[{_SPACES}]+"
_LAST_SPACE = f"([{_SPACES}]+)([{_SPACES}][^{_SPACES}])"


def mark_words(texts: tf.Tensor) -> tf.Tensor:
    """Puts marks into strings [batch] after each word, as `byte_words.word_end` splits them."""
    texts = replace(texts, _LAST_SPACE, b"\\1" + MARK + b"\\2")
    return replace(texts, _WORDS, b"\\0" + MARK)


def replace(texts: tf.Tensor, pattern: str, rewrite: bytes) -> tf.Tensor:
    """Like tf.strings.regex_replace, but `rewrite` need not be UTF-8."""
    return tf.raw_ops.StaticRegexReplace(input=texts, pattern=pattern, rewrite=rewrite, replace_global=True)
