"""Tokenizes by the `sentencepiece` and `tokenizers` libraries alone, as the light runtime does."""

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrecords.base.errors import UserError

WORD_BOUNDARY = "▁"
# Blocks of Chinese characters in google-research/bert's tokenization.py.
BERT_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# Control characters are not white space to WordPiece.
_WHITE = re.compile(r"[^\S\v\f\x1c-\x1f\x85]")


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A string that is always one token.

    special: whether it is a control token such as [CLS], which is not matched in users' texts. lstrip,
    rstrip: whether white space before or after belongs to the token. normalized: whether it is matched in normalized
    text; by default, `not special`.
    """

    content: str
    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None

    def __post_init__(self):
        if self.normalized is None:
            object.__setattr__(self, "normalized", not self.special)

    @property
    def is_cut_first(self) -> bool:
        return not self.normalized


class Blanks(NamedTuple):
    """Regular expressions for whole texts that control blanks at both ends.

    no_blank_before: matches texts that get no leading blank; "" leaves this to SentencePiece. last_blank: matches texts
    whose last blank is a token; "" matches none.
    """

    no_blank_before: str = ""
    last_blank: str = ""


class SentencePieceLibrary:
    """Converts texts to ids by a SentencePieceProcessor.

    parts: the ids that replace an id, such as those of a number with a comma: the last one is a comma.
    """

    def __init__(self, processor: Any, parts: Mapping[int, Sequence[int]], blanks: Blanks):
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
    """Converts texts to ids by a Tokenizer, one by one: threads of that library do not survive a fork.

    drops: whether characters are dropped, each of which belongs to the one before it, as in WordPiece.
    """

    def __init__(self, tokenizer: Any, drops: bool):
        self._tokenizer, self._drops = tokenizer, drops

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and row_splits; see `Tokenizer`."""
        return _flat([self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts])

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns ids, row_splits and each token's span in its text; see `Tokenizer`."""
        rows = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        pairs = [_with_dropped(text, row.offsets) if self._drops else row.offsets for text, row in zip(texts, rows)]
        offsets = np.array(list(itertools.chain.from_iterable(pairs)), np.int32).reshape(-1, 2)
        return *_flat([row.ids for row in rows]), offsets


def _with_dropped(text: str, offsets: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    ends = [begin for begin, _ in offsets[1:]] + [len(text)]
    for (begin, end), last in zip(offsets, ends):
        before = text[end - 1]
        # A sign or Chinese character is a word that has ended.
        if end < last and not (is_sign(before) or any(start <= ord(before) <= stop for start, stop in BERT_CHINESE)):
            white = _WHITE.search(text, end, last)
            end = white.start() if white else last
        yield begin, end


def is_sign(character: str) -> bool:
    """Returns whether a character is punctuation in google-research/bert's tokenization.py."""
    symbol = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return symbol or unicodedata.category(character).startswith("P")


def check_ids(ids: np.ndarray, table_rows: int, id_to_piece: Callable[[int], str]) -> None:
    """Raises UserError for an id without a row in a model's embedding table of `table_rows`; 0: no limit."""
    if table_rows and ids.max(initial=0) >= table_rows:
        raise UserError(lost_message(repr(id_to_piece(int(ids.max()))), table_rows))


def lost_message(found: str, table_rows: int) -> str:
    """Returns the message for a text that holds `found`."""
    return (
        f"a text holds {found}, an added token, for which the model's table of {table_rows} rows has none; "
        "leave it out of the text, or enlarge the table with transformers (resize_token_embeddings)"
    )


def lowered(texts: Sequence[str]) -> list[str]:
    """Lower-cases texts as the `tokenizers` library does: by character, so without a final sigma."""
    return [text.replace("\u03a3", "\u03c3").lower() for text in texts]


def places_before_lowering(texts: Sequence[str], row_splits: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Converts offsets in lower-cased texts to offsets in `texts`, since lower-casing lengthens İ."""
    for row, text in enumerate(texts):
        if len(text.lower()) > len(text):
            origins = np.repeat(np.arange(len(text)), [len(character.lower()) for character in text])
            own = offsets[row_splits[row] : row_splits[row + 1]]
            ends = np.where(own[:, 1] > own[:, 0], origins[own[:, 1] - 1] + 1, 0)
            own[:, 0] = np.append(origins, len(text))[own[:, 0]]
            own[:, 1] = np.maximum(ends, own[:, 0])
    return offsets


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32, splits[-1]), splits


# Characters of a text that are never cut, more than any word that is a token has, and for each token of a row.
_CHARACTERS, _OF_TOKEN = 2**17, 64
# Tokens at the end of a part that may be others in the whole text: WordPiece's words have up to 200 characters.
_MARGIN = 256
# Controls and formats.
_DROPPED = "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufffd]"
Tokenize = Callable[[Sequence[str]], tuple[Any, ...]]


def tokenize_beginnings(tokenize: Tokenize, texts: Sequence[str], count: int) -> tuple[Any, ...]:
    """Returns `tokenize(texts)`, but of a very long text only the first `count` tokens, or somewhat more.

    Time and memory are those of the part that is read; 9 million characters would take 2 GB.
    """
    most = _CHARACTERS + _OF_TOKEN * count
    return tokenize([text if len(text) <= most else _beginning(tokenize, text, count, most) for text in texts])


def _beginning(tokenize: Tokenize, text: str, count: int, size: int) -> str:
    if _is_enough(tokenize, text[:size], count):
        return text[:size]
    # Blanks, what WordPiece drops, or a word without end: few tokens, however long they are.
    # A word keeps more, since it may begin with what is dropped.
    for kind, most in ((_DROPPED, size), (r"\s", size), (r"\S", 2 * size)):
        text = re.sub(rf"({kind}{{{most}}}){kind}+", r"\1", text)
    while len(text) > size:
        size *= 8
        if _is_enough(tokenize, text[:size], count):
            return text[:size]
    return text


def _is_enough(tokenize: Tokenize, text: str, count: int) -> bool:
    return len(tokenize([text])[0]) >= count + _MARGIN
