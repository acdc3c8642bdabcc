"""Tokenizes by the `sentencepiece` and `tokenizers` libraries alone, as the light runtime does."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sentencepiece

WORD_BOUNDARY = "▁"


class Blanks(NamedTuple):
    """Regular expressions for whole texts that control blanks at both ends.

    no_blank_before: matches texts that get no leading blank; "" leaves this to SentencePiece. last_blank: matches texts
    whose last blank is a token; "" matches none.
    """

    no_blank_before: str = ""
    last_blank: str = ""


class SentencePieceLibrary:
    """Converts texts to ids by a SentencePiece model.

    parts: the ids that replace an id, such as those of a number with a comma: the last one is a comma.
    """

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, parts: Mapping[int, Sequence[int]], blanks: Blanks
    ):
        self._processor = processor
        size = self._processor.get_piece_size()
        self._counts = np.ones(size, np.int64)
        for number, ids in parts.items():
            self._counts[number] = len(ids)
        self._ends = np.cumsum(self._counts)
        self._parts = np.repeat(np.arange(size, dtype=np.int32), self._counts)
        for number, ids in parts.items():
            self._parts[self._ends[number] - len(ids) : self._ends[number]] = ids
        self._blanks = blanks
        self._boundary = self._processor.piece_to_id(WORD_BOUNDARY)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and row_splits; see `Tokenizer`."""
        rows = [self._processor.encode(text) for text in self._with_first_blanks(texts)]
        ids, splits, _ = self._with_parts(*_flat(rows))
        return self.with_last_blanks(texts, ids, splits)[:2]

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns ids, row_splits and each token's span in its text; see `Tokenizer`."""
        longer = self._with_first_blanks(texts)
        rows = [self._processor.encode(text, return_type="offset_mapping") for text in longer]
        ids, splits = _flat([row["ids"] for row in rows])
        pairs = [np.array(row["offsets"], np.int32).reshape(-1, 2) for row in rows]
        offsets = np.concatenate([np.zeros((0, 2), np.int32), *pairs])
        ids, splits, counts = self._with_parts(ids, splits)
        ends, cut = np.cumsum(counts), counts > 1
        offsets = np.repeat(offsets, counts, axis=0)
        offsets[np.repeat(cut, counts), 1] -= 1
        commas = ends[cut] - 1
        offsets[commas] = offsets[commas, 1:] + [0, 1]
        before = np.array([len(one) - len(text) for one, text in zip(longer, texts)], np.int32)
        offsets = np.maximum(offsets - np.repeat(before, np.diff(splits))[:, None], 0)
        return self.with_last_blanks(texts, ids, splits, offsets)

    def _with_parts(self, ids: np.ndarray, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        counts = self._counts[ids]
        ends = np.append(0, np.cumsum(counts))
        places = np.arange(ends[-1]) + np.repeat(self._ends[ids] - ends[1:], counts)
        return self._parts[places], ends[splits], counts

    def _with_first_blanks(self, texts: Sequence[str]) -> list[str]:
        if not self._blanks.no_blank_before:
            return list(texts)
        has_none = re.compile(self._blanks.no_blank_before).fullmatch
        return [text if has_none(text) else f" {text}" for text in texts]

    def with_last_blanks(
        self, texts: Sequence[str], ids: np.ndarray, splits: np.ndarray, offsets: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Adds the last blanks of texts that are tokens."""
        offsets = np.zeros((len(ids), 2), np.int32) if offsets is None else offsets
        if not self._blanks.last_blank:
            return ids, splits, offsets
        is_last = re.compile(self._blanks.last_blank).fullmatch
        more = np.array([bool(is_last(text)) for text in texts], bool)
        ends = splits[1:][more]
        places = [(len(text) - 1, len(text)) for text, one in zip(texts, more) if one]
        ids = np.insert(ids, ends, self._boundary).astype(np.int32)
        offsets = np.insert(offsets, ends, np.array(places, np.int32).reshape(-1, 2), axis=0)
        return ids, splits + np.append(0, np.cumsum(more)), offsets


class TokenizersLibrary:
    """Converts texts to ids by a tokenizer.json, one by one: threads of that library do not survive a fork."""

    def __init__(self, content: bytes):
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_str(content.decode())

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and row_splits; see `Tokenizer`."""
        return _flat([self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts])

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns ids, row_splits and each token's span in its text; see `Tokenizer`."""
        rows = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        ids, splits = _flat([row.ids for row in rows])
        pairs = itertools.chain.from_iterable(row.offsets for row in rows)
        return ids, splits, np.array(list(pairs), np.int32).reshape(-1, 2)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32, splits[-1]), splits
