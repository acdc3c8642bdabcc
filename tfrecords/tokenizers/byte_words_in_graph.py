r"""The words of byte-level BPE in a graph: marks between them, put by RE2's regular expressions.

The mark is the byte 0xFF, which no UTF-8 has and so no text, and which no expression matches: a word never holds one.
"""

import itertools
import random
from collections.abc import Sequence

import tensorflow as tf

from tfrecords.base.errors import UserError, first_line
from tfrecords.tokenizers.byte_bpe_file import GPT2_PATTERN
from tfrecords.tokenizers.byte_words import library_parting
from tfrecords.tokenizers.re2_patterns import Re2Pattern, re2_pattern

MARK = b"\xff"
# Of every kind that patterns tell apart.
_LETTERS = [*" \n\t1!'aAs", "\u3000", "\u0301", "中"]
_LONGEST, _RANDOM = 4, 3000


class MarkWords:
    """Puts marks around the words of texts, at least one between two: string [batch] to string [batch].

    Args:
        patterns: as of `ByteBPERules`.

    Raises:
        UserError: one of them has no form in a graph, or its form was seen to part a text otherwise.
    """

    def __init__(self, patterns: Sequence[str]):
        self._is_gpt2 = tuple(patterns) == (GPT2_PATTERN,)
        try:
            self._patterns: list[Re2Pattern] = list(map(re2_pattern, patterns))
            if not self._is_gpt2:
                self._try(patterns)
        except UserError as error:
            raise UserError(
                f"text is parted into words by '{' and then '.join(patterns)}', which has no form in a graph: {error}; "
                "export with --inputs=ids, and tokenize before the request"
            ) from error

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        # GPT-2's pattern leaves nothing between two words.
        marked = b"\\0" + MARK if self._is_gpt2 else MARK + b"\\0" + MARK
        for pattern in self._patterns:
            if pattern.look_ahead is not None:
                texts = replace(texts, pattern.look_ahead, b"\\1" + MARK + b"\\2")
            texts = replace(texts, pattern.words, marked)
        return texts

    def _try(self, patterns: Sequence[str]) -> None:
        """Compares the words of all short texts, and of some longer ones, with the library's."""
        parting, rng = library_parting(patterns), random.Random(0)
        own = sorted({letter for pattern in patterns for letter in pattern} - set("\\"))
        texts = [
            "".join(letters) for size in range(_LONGEST + 1) for letters in itertools.product(_LETTERS, repeat=size)
        ]
        texts += ["".join(rng.choices(_LETTERS + own, k=rng.randrange(5, 16))) for _ in range(_RANDOM)]
        try:
            with tf.init_scope():
                found = self(tf.constant(texts)).numpy()
        except tf.errors.InvalidArgumentError as error:
            raise UserError(f"RE2 does not know it ({first_line(error)})") from error
        for text, marked in zip(texts, found):
            expected = [word for word, _ in parting.pre_tokenize_str(text) if word]
            if (words := [word.decode() for word in marked.split(MARK) if word]) != expected:
                raise UserError(f"{text!r} would become {words} and not {expected}")


def replace(texts: tf.Tensor, pattern: str, rewrite: bytes) -> tf.Tensor:
    """As tf.strings.regex_replace, which takes rewrites that are UTF-8 alone."""
    return tf.raw_ops.StaticRegexReplace(input=texts, pattern=pattern, rewrite=rewrite, replace_global=True)
