"""Finds added tokens in a text before WordPiece reads the rest, as the `tokenizers` library does."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np

from tfrecords.tokenizers.base import AddedToken, UnknownTokenizer
from tfrecords.tokenizers.byte_segmenter import FIRST_TOKEN
from tfrecords.tokenizers.byte_text import SPACES, check_cut_tokens, cut_pattern, parts_of
from tfrecords.tokenizers.characters import CharacterRules


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
        self._patterns = [re.compile(cut_pattern(part, SPACES)) if part else None for part in (self.first, self.later)]
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
                yield FIRST_TOKEN + self._ids[0][found[found.lastindex]], begin, end
                continue
            if not self.later:
                yield from ((ord(text[place]), place, place + 1) for place in range(begin, end))
                continue
            normal = list(self._normalized(text, begin, end))
            string = "".join(character for character, *_ in normal)
            for token, first, last in parts_of(self._patterns[1], string):
                if token:
                    yield FIRST_TOKEN + self._ids[1][token[token.lastindex]], normal[first][1], normal[last - 1][2]
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
