"""WordPiece as BERT and the Chinese ALBERTs use it.

Text goes through the table of `characters`; of what a space parts, the longest piece of the vocabulary comes first
(google-research/bert tokenization.py).
"""

import os
import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tfrecords.base.compiled import compiled
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.characters import ITSELF, MAX_WORD_CHARACTERS, PAGE, build_trie, character_table, child

_SUFFIX = "##"
_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]|<S>|<T>")


class WordPieceTokenizer(Tokenizer):
    """See `Tokenizer`. `vocabulary` is the text file: a piece a line, the line number its id."""

    kind = "wordpiece"
    file_name = "vocab.txt"

    def __init__(
        self,
        vocabulary: bytes,
        lower_case: bool = True,
        path: str | os.PathLike = "vocab.txt",
        keep_accents: bool = False,
    ):
        # Without lower case BERT keeps them anyway.
        super().__init__(vocabulary, lower_case, keep_accents and lower_case)
        try:
            # Some editors begin a file with a byte-order mark.
            lines = vocabulary.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"tokenizer '{path}' is not UTF-8 text; SentencePiece models end in .model") from error
        self.pieces = [line.rstrip("\r") for line in (lines[:-1] if not lines[-1] else lines)]
        self._ids = {piece: token_id for token_id, piece in enumerate(self.pieces)}
        for name in ("pad", "unk", "cls", "sep", "mask"):
            piece = f"[{name.upper()}]"
            if piece not in self._ids:
                raise UnknownTokenizer(
                    f"tokenizer '{path}' has no line {piece}, it is not a WordPiece vocabulary; give one, or {BY_IDS}"
                )
            setattr(self, f"{name}_id", self._ids[piece])

    @cached_property
    def word_starts(self) -> np.ndarray:
        return np.array([not piece.startswith(_SUFFIX) for piece in self.pieces])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `Tokenizer`."""
        return [piece.removeprefix(_SUFFIX).encode() for piece in self.pieces]

    @cached_property
    def special_ids(self) -> np.ndarray:
        special = [token_id for token_id, piece in enumerate(self.pieces) if _SPECIAL.fullmatch(piece)]
        return np.array(special, np.int32)

    @cached_property
    def _trie(self) -> tuple[np.ndarray, np.ndarray, int]:
        """As from `build_trie`, and last the node of "##"."""
        edges, ids, nodes = build_trie([*zip(self.pieces, range(self.vocab_size)), (_SUFFIX, -1)])
        return edges, ids, nodes[-1]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.encode_with_offsets(texts)[:2]

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Tokenizer`. A dropped character belongs to the one before it in its word."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        text_splits = np.cumsum([0] + [len(text) for text in texts])
        return _encode(
            codes, text_splits, *character_table(self.lower_case, self.keep_accents), *self._trie, self.unk_id
        )

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.pieces[i] for i in ids).replace(f" {_SUFFIX}", "")

    def in_graph(self):
        from tfrecords.tokenizers.in_graph import WordPieceInGraph

        return WordPieceInGraph(self.pieces, self.unk_id, *character_table(self.lower_case, self.keep_accents))


@compiled
def _encode(codes, text_splits, pages, rows, expansions, edges, ids, suffix, unk_id):
    width = expansions.shape[1]
    word = np.empty(MAX_WORD_CHARACTERS + 1, np.int64)
    # Where in its text each character of the word begins and ends; dropped ones belong to the one before.
    places = np.empty((MAX_WORD_CHARACTERS + 1, 2), np.int32)
    # A character gives at most as many pieces as it has characters after expansion.
    out = np.empty(len(codes) * width + 1, np.int32)
    offsets = np.empty((len(codes) * width + 1, 2), np.int32)
    splits = np.zeros(len(text_splits), np.int64)
    count = 0
    for text in range(len(text_splits) - 1):
        length = 0
        for position in range(text_splits[text], text_splits[text + 1]):
            code = np.int64(codes[position])
            row = rows[pages[code // PAGE] * PAGE + code % PAGE]
            place = position - text_splits[text]
            if length and expansions[row, 0] == 0:
                places[length - 1, 1] = place + 1
            for column in range(width):
                target = np.int64(expansions[row, column])
                if target == 0:
                    break
                if target == ITSELF:
                    target = code
                if target == 32:
                    count = _put_word(word[:length], places, out, offsets, count, edges, ids, suffix, unk_id)
                    length = 0
                elif length <= MAX_WORD_CHARACTERS:
                    word[length] = target
                    places[length, 0], places[length, 1] = place, place + 1
                    length += 1
                else:
                    places[MAX_WORD_CHARACTERS, 1] = place + 1
        count = _put_word(word[:length], places, out, offsets, count, edges, ids, suffix, unk_id)
        splits[text + 1] = count
    return out[:count].copy(), splits, offsets[:count].copy()


@compiled
def _put_word(word, places, out, offsets, count, edges, ids, suffix, unk_id):
    """Appends the pieces of a word, longest first; a word with a part that is no piece is one [UNK]."""
    first = count
    start = 0
    while start < len(word):
        node = suffix if start else 0
        end, piece = start, np.int32(-1)
        at = start
        while at < len(word):
            node = child(node, word[at], edges)
            if node < 0:
                break
            at += 1
            if ids[node] >= 0:
                end, piece = at, ids[node]
        if piece < 0 or len(word) > MAX_WORD_CHARACTERS:
            out[first] = unk_id
            offsets[first, 0], offsets[first, 1] = places[0, 0], places[len(word) - 1, 1]
            return first + 1
        out[count] = piece
        offsets[count, 0], offsets[count, 1] = places[start, 0], places[end - 1, 1]
        count += 1
        start = end
    return count
