r"""The words of byte-level BPE in a graph: marks between them, put by RE2's regular expressions.

The mark is the byte 0xFF, which no UTF-8 has and so no text, and which no expression matches: a word never holds one.
RE2 cannot look ahead, as GPT-2's pattern does in `\s+(?!\S)`: of several spaces the last stays for the word after them.
A mark that is put before such a space does the same.
"""

import tensorflow as tf

from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, re2_class

MARK = b"\xff"
_LETTERS, _NUMBERS, _SPACES = map(re2_class, (LETTER, NUMBER, SPACE))
_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTERS}]+| ?[{_NUMBERS}]+| ?[^{_SPACES}{_LETTERS}{_NUMBERS}]+|[{_SPACES}]+"
_LAST_SPACE = f"([{_SPACES}]+)([{_SPACES}][^{_SPACES}])"


def mark_words(texts: tf.Tensor) -> tf.Tensor:
    """Puts marks after the words of texts, at least one between two: string [batch] to string [batch].

    The words are those of `byte_words.word_end`.
    """
    texts = replace(texts, _LAST_SPACE, b"\\1" + MARK + b"\\2")
    return replace(texts, _WORDS, b"\\0" + MARK)


def replace(texts: tf.Tensor, pattern: str, rewrite: bytes) -> tf.Tensor:
    """As tf.strings.regex_replace, which takes rewrites that are UTF-8 alone."""
    return tf.raw_ops.StaticRegexReplace(input=texts, pattern=pattern, rewrite=rewrite, replace_global=True)
