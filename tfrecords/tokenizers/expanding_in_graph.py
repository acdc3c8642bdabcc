"""Normalizes characters for WordPiece in a TensorFlow graph, and leaves added tokens whole.

Added tokens are between marks: code points that Unicode never assigns (from U+FDD0).
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.characters import ITSELF, PAGE

# Marks: the beginning of a word before a token; begin and end of a token matched in the original text; the same three
# for tokens matched in normalized text; a blank within a token; and a replacement for marks that a text contains.
_BEFORE, _OPEN, _CLOSE, _LATER_BEFORE, _LATER_OPEN, _LATER_CLOSE, _BLANK, _NO_MARK = map(chr, range(0xFDD0, 0xFDD8))


def word_of(token: AddedToken) -> str:
    """Placeholder word of an added token, which no text contains."""
    return (_OPEN if token.is_cut_first else _LATER_OPEN) + token.content.replace(" ", _BLANK)


def characters_and_tokens(
    texts: tf.Tensor, tables: Sequence[tuple[tf.Tensor, ...]], first: Sequence[AddedToken], later: Sequence[AddedToken]
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Returns the normalized characters of texts, with blanks between words, and each character's span in its text.

    Arguments are as in `WordPieceInGraph`. Returns (codes: ragged int32 [batch, None], begins, ends: int32 [codes]).
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    texts = tf.strings.regex_replace(texts, f"[{_BEFORE}-{_BLANK}]", _NO_MARK)
    if first:
        texts = tf.strings.regex_replace(texts, _pattern(first), rf"{_BEFORE}{_OPEN}\0{_CLOSE}")
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    of_text = ~is_in(codes.flat_values, _BEFORE + _OPEN + _CLOSE)
    ends = tf.math.cumsum(tf.cast(of_text, tf.int64))
    before = tf.gather(tf.concat([[0], ends], axis=0), codes.row_starts())
    ends -= tf.gather(before, codes.value_rowids())
    places = ends - tf.cast(of_text, tf.int64), ends
    for step, table in enumerate(tables):
        if step:
            # Matches tokens already cut out first, to leave them unchanged.
            pattern = f"({_OPEN}[^{_CLOSE}]*{_CLOSE})|({_pattern(later)})"
            texts = tf.strings.unicode_encode(codes, "UTF-8")
            texts = tf.strings.regex_replace(texts, pattern, rf"\1{_LATER_BEFORE}{_LATER_OPEN}\2{_LATER_CLOSE}")
            texts = tf.strings.regex_replace(texts, _LATER_BEFORE + _LATER_OPEN + _LATER_CLOSE, "")
            codes = tf.strings.unicode_decode(texts, "UTF-8")
            is_old = ~is_in(codes.flat_values, _LATER_BEFORE + _LATER_OPEN + _LATER_CLOSE)
            # A mark has the span of the character after it.
            former = tf.math.cumsum(tf.cast(is_old, tf.int64), exclusive=True)
            former = tf.minimum(former, tf.size(places[0], out_type=tf.int64) - 1)
            places = tuple(tf.gather(place, former) for place in places)
        codes, begins, ends = _expand_around_tokens(codes, table)
        places = tf.gather(places[0], begins), tf.gather(places[1], ends - 1)
    is_mark = is_in(codes.flat_values, _BEFORE + _CLOSE + _LATER_BEFORE + _LATER_CLOSE)
    codes = codes.with_flat_values(tf.where(is_mark, ord(" "), codes.flat_values))
    return codes, *(tf.cast(place, tf.int32) for place in places)


def _pattern(tokens: Sequence[AddedToken]) -> str:
    return "|".join(re.escape(token.content) for token in tokens)


def _expand_around_tokens(codes: tf.RaggedTensor, table: tuple[tf.Tensor, ...]) -> tuple:
    flat = codes.flat_values
    depth = tf.cumsum(tf.cast(is_in(flat, _OPEN + _LATER_OPEN), tf.int32))
    depth -= tf.cumsum(tf.cast(is_in(flat, _CLOSE + _LATER_CLOSE), tf.int32))
    inside = depth > 0
    codes = codes.with_flat_values(tf.where(inside & (flat == ord(" ")), ord(_BLANK), flat))
    return expand(codes, table, inside)


def is_in(codes: tf.Tensor, characters: str) -> tf.Tensor:
    """Whether each code point is one of the characters, bool [codes]."""
    return tf.reduce_any(codes[:, tf.newaxis] == tf.constant([*map(ord, characters)], codes.dtype), axis=1)


def expand(
    codes: tf.RaggedTensor, table: tuple[tf.Tensor, ...], is_whole: tf.Tensor | None = None
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Replaces every character by its text in `table`, and returns each result's span.

    table: from `characters.character_table`. is_whole: bool [codes], characters to leave unchanged.

    Returns (results: ragged int32 [batch, None], begins, ends: int64 [results]). A dropped character belongs to the
    result before it.
    """
    pages, rows, expansions = table
    flat = codes.flat_values
    row = tf.gather(rows, tf.gather(pages, flat // PAGE) * PAGE + flat % PAGE)
    if is_whole is not None:
        row = tf.where(is_whole, 0, row)
    expanded = tf.gather(expansions, row)
    expanded = tf.where(expanded == ITSELF, flat[:, None], expanded)
    present = expanded > 0
    lengths = tf.reduce_sum(tf.cast(present, tf.int64), axis=1)
    by_character = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(expanded, present), lengths, validate=False)
    origins = by_character.value_rowids()
    row_limits = tf.gather(codes.row_limits(), tf.gather(codes.value_rowids(), origins))
    expanded_ones = tf.where(lengths > 0)[:, 0]
    following = tf.searchsorted(expanded_ones, origins, side="right", out_type=tf.int64)
    ends = tf.gather(tf.concat([expanded_ones, [tf.int64.max]], axis=0), following)
    place = tf.range(tf.size(origins, out_type=tf.int64)) + 1
    is_last = place == tf.gather(by_character.row_limits(), origins)
    ends = tf.where(is_last, tf.minimum(ends, row_limits), origins + 1)
    return codes.with_flat_values(by_character).merge_dims(1, 2), origins, ends
