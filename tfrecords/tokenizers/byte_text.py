"""Converts texts to code points with one code for each added token, for `byte_words`."""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from tfrecords.tokenizers.base import AddedToken, UnknownTokenizer
from tfrecords.tokenizers.byte_segmenter import FIRST_TOKEN
from tfrecords.tokenizers.unicode_classes import SPACE, characters

_SPACES = "".join(characters(SPACE))
# The content of a character class of Python's regular expressions.
SPACES = re.escape(_SPACES)


class TextReader:
    """Converts texts to code points, and added tokens to FIRST_TOKEN + id.

    cut_tokens: longest first. add_prefix_space: whether text between them gets a leading blank if it has none. compose:
    whether texts are composed first (NFC).
    """

    def __init__(self, cut_tokens: Sequence[AddedToken], add_prefix_space: bool, compose: bool):
        self._pattern = re.compile(cut_pattern(cut_tokens, SPACES)) if cut_tokens else None
        self._tokens = {token.content: token.id for token in cut_tokens}
        self._add_prefix_space, self._compose = add_prefix_space, compose

    def read(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of all texts, uint32, and their row splits, int64 [texts + 1]."""
        if self._compose:
            texts = [unicodedata.normalize("NFC", text) for text in texts]
        if self._pattern is None and not self._add_prefix_space:
            return _codes("".join(texts)), np.cumsum([0, *map(len, texts)], dtype=np.int64)
        rows = [[codes for codes, _, _ in self._parts(text)] for text in texts]
        codes = np.concatenate([np.zeros(0, np.uint32), *(part for row in rows for part in row)])
        return codes, np.cumsum([0, *(sum(map(len, row)) for row in rows)], dtype=np.int64)

    def read_with_places(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns the results of `read`, each code's span in its text, and how many blanks begin and end it.

        The last two are int64 [codes, 2]; only added tokens have such blanks.
        """
        rows, splits = [np.zeros(0, np.uint32)], [0]
        places, blanks = [np.zeros((0, 2), np.int64)], [np.zeros((0, 2), np.int64)]
        for text in texts:
            composed, origins = _composed(text) if self._compose else (text, None)
            size = 0
            for codes, begin, end in self._parts(composed):
                is_token = codes[0] >= FIRST_TOKEN
                # A blank put first has the span of the first character, a token that of its string.
                first = begin if is_token else np.maximum(np.arange(end - len(codes), end), begin)
                last = end if is_token else first + 1
                rows.append(codes)
                places.append(np.stack([first, last], axis=-1).reshape(-1, 2))
                blanks.append(np.tile(_blanks(composed[begin:end]) if is_token else (0, 0), (len(codes), 1)))
                size += len(codes)
                if origins is not None:
                    places[-1] = _through(places[-1], origins)
            splits.append(splits[-1] + size)
        return np.concatenate(rows), np.array(splits, np.int64), np.concatenate(places), np.concatenate(blanks)

    def _parts(self, text: str) -> Iterator[tuple[np.ndarray, int, int]]:
        for found, begin, end in parts_of(self._pattern, text):
            if found:
                yield np.array([FIRST_TOKEN + self._tokens[found[found.lastindex]]], np.uint32), begin, end
            else:
                yield self._between(text[begin:end]), begin, end

    def _between(self, text: str) -> np.ndarray:
        return _codes(" " + text if self._add_prefix_space and text[0] != " " else text)


def parts_of(pattern: re.Pattern | None, text: str) -> Iterator[tuple[re.Match | None, int, int]]:
    """Yields (match, begin, end) of a pattern's matches, and (None, begin, end) of the text between them."""
    at = 0
    for found in pattern.finditer(text) if pattern else ():
        if found.start() > at:
            yield None, at, found.start()
        yield found, *found.span()
        at = found.end()
    if at < len(text):
        yield None, at, len(text)


def cut_pattern(tokens: Sequence[AddedToken], spaces: str) -> str:
    """Returns a regular expression, for Python and RE2, that matches added tokens; its group is the token's string.

    Earlier tokens have priority. spaces: the content of a white-space character class.
    """
    alternatives = []
    for lstrip, rstrip in ((True, True), (True, False), (False, True), (False, False)):
        contents = [token.content for token in tokens if (token.lstrip, token.rstrip) == (lstrip, rstrip)]
        if contents:
            group = f"({'|'.join(map(re.escape, contents))})"
            alternatives.append(f"{f'[{spaces}]*' * lstrip}{group}{f'[{spaces}]*' * rstrip}")
    return "|".join(alternatives)


def check_cut_tokens(tokens: Sequence[AddedToken], where: str) -> None:
    """Raises UnknownTokenizer if the `tokenizers` library may match other tokens than `cut_pattern` does."""
    has_later = any(not token.is_cut_first for token in tokens)
    first = [token for token in tokens if token.lstrip or token.rstrip or (token.is_cut_first and has_later)]
    for one, other in itertools.product(first, tokens):
        if _may_clash(one, other):
            raise UnknownTokenizer(
                f"'{where}' adds the tokens {one.content!r} and {other.content!r}, which may overlap in a text"
            )


def _may_clash(one: AddedToken, other: AddedToken) -> bool:
    is_earlier = one.is_cut_first and not other.is_cut_first
    if one.lstrip or one.rstrip:
        # Runs of blanks that are tokens, as in ModernBERT, are cut out of what `one` leaves.
        if _blanks(other.content) != (0, 0) and not (is_earlier and not other.content.strip(_SPACES)):
            return True
        begin_alike = one.content.startswith(other.content) or other.content.startswith(one.content)
        if begin_alike and (one.lstrip, one.rstrip) != (other.lstrip, other.rstrip):
            return True
    return is_earlier and ((one.lstrip and other.rstrip) or _overlap(one.content, other.content))


def _overlap(one: str, other: str) -> bool:
    if one in other or other in one:
        return True
    sizes = range(1, min(len(one), len(other)))
    return any(one.endswith(other[:size]) or other.endswith(one[:size]) for size in sizes)


def _blanks(text: str) -> tuple[int, int]:
    return len(text) - len(text.lstrip(_SPACES + "Ġ")), len(text) - len(text.rstrip(_SPACES + "Ġ"))


def _codes(text: str) -> np.ndarray:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    halves = (codes >= 0xD800) & (codes < 0xE000)
    return np.where(halves, np.uint32(0xFFFD), codes) if halves.any() else codes


def _composed(text: str) -> tuple[str, np.ndarray | None]:
    if unicodedata.is_normalized("NFC", text):
        return text, None
    # Parts that no later character can change.
    parts, begins = [], []
    for place, character in enumerate(text):
        if parts and (
            unicodedata.combining(character)
            or unicodedata.normalize("NFC", parts[-1] + character) != _nfc(parts[-1]) + _nfc(character)
        ):
            parts[-1] += character
        else:
            parts.append(character)
            begins.append(place)
    composed, origins = [_nfc(part) for part in parts], []
    for begin, part, new in zip(begins, parts, composed):
        as_it_was = [(begin + place, begin + place + 1) for place in range(len(part))]
        origins += as_it_was if new == part else [(begin, begin + len(part))] * len(new)
    return "".join(composed), np.array(origins)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _through(places: np.ndarray, origins: np.ndarray) -> np.ndarray:
    begins = np.append(origins[:, 0], origins[-1, 1])
    ends = np.insert(origins[:, 1], 0, 0)
    through = np.stack([begins[places[:, 0]], ends[places[:, 1]]], axis=1)
    return np.minimum(through, through[:, 1:])
