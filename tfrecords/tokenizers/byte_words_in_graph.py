r"""The words of byte-level BPE in a graph: RE2's regular expressions put marks between them.

The mark is the byte 0xFF, which neither UTF-8 nor any expression contains. RE2 cannot look ahead, as GPT-2's pattern
does in `\s+(?!\S)`: the last of several spaces belongs to the next word. A mark before such a space has the same
effect.
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
    """tf.strings.regex_replace for rewrites that are not UTF-8."""
    return tf.raw_ops.StaticRegexReplace(input=texts, pattern=pattern, rewrite=rewrite, replace_global=True)
