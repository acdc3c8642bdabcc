"""Cuts added tokens out of texts, as the `tokenizers` library does, and reads the rest as code points."""

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from tfrecords.tokenizers.base import BY_IDS, UnknownTokenizer
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.characters import FIRST_TOKEN, CharacterRules


class TextReader:
    """Converts texts to code points, and added tokens to FIRST_TOKEN + id.

    cut_tokens: longest first. add_prefix_space: whether text between them gets a leading blank if it has none. compose:
    whether texts are composed first (NFC).
    """

    def __init__(self, cut_tokens: Sequence[AddedToken], add_prefix_space: bool, compose: bool):
        self._pattern = re.compile(cut_pattern(cut_tokens)) if cut_tokens else None
        self._tokens = {token.content: token.id for token in cut_tokens}
        self._add_prefix_space, self._compose = add_prefix_space, compose

    def read(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of all texts, uint32, and their row splits, int64 [texts + 1]."""
        if self._pattern or self._add_prefix_space:
            return self.read_with_places(texts)[:2]
        if self._compose:
            texts = list(map(_nfc, texts))
        return _codes("".join(texts)), np.cumsum([0, *map(len, texts)], dtype=np.int64)

    def read_with_places(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the results of `read`, and each code's span in its text, int64 [codes, 2]."""
        rows, splits, places = [np.zeros(0, np.uint32)], [0], [np.zeros((0, 2), np.int64)]
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
                size += len(codes)
                if origins is not None:
                    places[-1] = _through(places[-1], origins)
            splits.append(splits[-1] + size)
        return np.concatenate(rows), np.array(splits, np.int64), np.concatenate(places)

    def _parts(self, text: str) -> Iterator[tuple[np.ndarray, int, int]]:
        for found, begin, end in parts_of(self._pattern, text):
            if found:
                yield np.array([FIRST_TOKEN + self._tokens[found[0]]], np.uint32), begin, end
            else:
                blank = " " * (self._add_prefix_space and text[begin] != " ")
                yield _codes(blank + text[begin:end]), begin, end


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


def cut_pattern(tokens: Sequence[AddedToken]) -> str:
    """Returns a regular expression, for Python and RE2, that matches added tokens; earlier tokens have priority."""
    return "|".join(re.escape(token.content) for token in tokens)


def check_cut_tokens(tokens: Sequence[AddedToken], where: str) -> None:
    """Raises UnknownTokenizer if the `tokenizers` library may match other strings than `cut_pattern` does."""
    for token in tokens:
        if token.lstrip or token.rstrip:
            raise UnknownTokenizer(
                f"'{where}' adds the token {token.content!r}, which takes in white space (lstrip, rstrip); {BY_IDS}"
            )
    for one, other in itertools.product(tokens, tokens):
        if one.is_cut_first and not other.is_cut_first and _overlap(one.content, other.content):
            raise UnknownTokenizer(
                f"'{where}' adds the tokens {one.content!r} and {other.content!r}, which may overlap in a text"
            )


def _overlap(one: str, other: str) -> bool:
    if one in other or other in one:
        return True
    sizes = range(1, min(len(one), len(other)))
    return any(one.endswith(other[:size]) or other.endswith(one[:size]) for size in sizes)


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


class TokenCutter:
    """Finds added tokens in texts, the longest first; `rules` normalize the rest.

    `first` tokens are matched in the original text, `later` ones in normalized text. Raises UnknownTokenizer if the
    `tokenizers` library may match other tokens.
    """

    def __init__(self, tokens: Sequence[AddedToken], rules: CharacterRules, where: str):
        self._rules = rules
        longest_first = sorted(tokens, key=lambda token: -len(token.content))
        self.first = [token for token in longest_first if token.is_cut_first]
        later = [token for token in tokens if not token.is_cut_first]
        later = [dataclasses.replace(token, content="".join(map(rules.normal, token.content))) for token in later]
        self.later = sorted(later, key=lambda token: -len(token.content))
        contents = [token.content for token in self.later]
        for token in [*self.first, *self.later]:
            odd_space = any(character.isspace() and character != " " for character in token.content)
            if not token.content.strip() or odd_space or contents.count(token.content) > 1:
                raise UnknownTokenizer(
                    f"'{where}' adds the token {token.content!r}, which is blank, has white space other than blanks, "
                    "or is equal to another when normalized; this is not followed"
                )
        for part in (self.first, self.later):
            check_cut_tokens(part, where)
        self._patterns = [re.compile(cut_pattern(part)) if part else None for part in (self.first, self.later)]
        self._ids = [{token.content: token.id for token in part} for part in (self.first, self.later)]

    def read(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (codes, splits, places) of texts.

        codes: uint32 code points, normalized if there are `later` tokens; FIRST_TOKEN + id for added tokens. splits:
        int64 [texts + 1]. places: codes' spans in the texts, int32 [codes, 2].
        """
        rows, splits = list[tuple[int, int, int]](), [0]
        for text in texts:
            rows += self._read(text)
            splits.append(len(rows))
        table = np.array(rows, np.int64).reshape(-1, 3)
        return table[:, 0].astype(np.uint32), np.array(splits, np.int64), table[:, 1:].astype(np.int32)

    def _read(self, text: str) -> Iterator[tuple[int, int, int]]:
        for found, begin, end in parts_of(self._patterns[0], text):
            if found:
                yield FIRST_TOKEN + self._ids[0][found[0]], begin, end
                continue
            if not self.later:
                yield from ((ord(text[place]), place, place + 1) for place in range(begin, end))
                continue
            normal = list(self._normalized(text, begin, end))
            string = "".join(character for character, *_ in normal)
            for token, first, last in parts_of(self._patterns[1], string):
                if token:
                    yield FIRST_TOKEN + self._ids[1][token[0]], normal[first][1], normal[last - 1][2]
                else:
                    yield from ((ord(character), *place) for character, *place in normal[first:last])

    def _normalized(self, text: str, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
        last: list[tuple[str, int, int]] = []
        for place in range(begin, end):
            new = self._rules.normal(text[place])
            if new:
                yield from last
                *others, final = ((character, place, place + 1) for character in new)
                yield from others
                last = [final]
            elif last and last[0][0] != " ":
                last = [(*last[0][:2], place + 1)]
        yield from last
