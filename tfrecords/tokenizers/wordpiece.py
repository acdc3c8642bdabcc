"""WordPiece as in BERT and the Chinese ALBERTs (google-research/bert tokenization.py)."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from tfrecords.base.errors import UserError
from tfrecords.base.machine.compiled import compiled
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.characters import (
    FIRST_TOKEN,
    ITSELF,
    PAGE,
    CharacterRules,
    build_trie,
    character_table,
    child,
)
from tfrecords.tokenizers.folders.row_template import as_template, tokenizer_json

# google-research/bert tokenization.py, and the default of the `tokenizers` library: longer words are unknown.
LONGEST_WORD, _LIBRARY_LONGEST_WORD = 200, 100


@dataclasses.dataclass(frozen=True)
class WordPieceRules:
    """A WordPiece tokenizer's rules besides vocabulary, case and accents; see `CharacterRules` and `Tokenizer`.

    strip_accents: whether accents are dropped even if case stays. longest_word: characters above which a word is
    unknown. names: (role, piece) of special pieces with unusual names. outside: added tokens in the vocabulary that
    WordPiece never matches.
    """

    of_library: bool = False
    clean: bool = True
    chinese: bool = True
    strip_accents: bool = False
    longest_word: int = LONGEST_WORD
    names: tuple[tuple[str, str], ...] = ()
    separators_between: int = 1
    second_segment_id: int = 1
    added: tuple[AddedToken, ...] = ()
    outside: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "WordPieceRules":
        """Makes rules from the result of `values`.

        >>> rules = WordPieceRules(longest_word=50, added=(AddedToken("[E1]", 7, True),))
        >>> WordPieceRules.from_values(json.loads(json.dumps(rules.values()))) == rules
        True
        """
        names = tuple((role, piece) for role, piece in values.get("names", ()))
        added = tuple(AddedToken(**token) for token in values.get("added", ()))
        return cls(**values | {"names": names, "added": added, "outside": tuple(values.get("outside", ()))})

    def values(self) -> dict[str, Any]:
        """Returns the rules that differ from google-research/bert's, as JSON values."""
        values, plain = dataclasses.asdict(self), dataclasses.asdict(BERT_RULES)
        return {name: value for name, value in values.items() if value != plain[name]}

    def digest_text(self) -> str:
        """Returns the rules as text for a tokenizer's SHA-256; "" for BERT's and the `tokenizers` library's."""
        return "" if self in (BERT_RULES, LIBRARY_RULES) else json.dumps(self.values(), sort_keys=True)


BERT_RULES, LIBRARY_RULES = WordPieceRules(), WordPieceRules(of_library=True, longest_word=_LIBRARY_LONGEST_WORD)


def as_tokenizer_json(tokenizer: "WordPieceTokenizer") -> bytes:
    """Returns a tokenizer.json of the `tokenizers` library for a WordPiece tokenizer."""
    rules = tokenizer.rules
    cls, sep = ((tokenizer.pieces[number], number) for number in (tokenizer.cls_id, tokenizer.sep_id))
    roles = [cls[1], sep[1], tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id]
    control = [AddedToken(tokenizer.pieces[number], number, special=True) for number in roles]
    normalizer = {"clean_text": rules.clean, "handle_chinese_chars": rules.chinese, "lowercase": tokenizer.lower_case}
    normalizer["strip_accents"] = (tokenizer.lower_case and not tokenizer.keep_accents) or rules.strip_accents
    model = {
        "type": "WordPiece",
        "unk_token": tokenizer.pieces[tokenizer.unk_id],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": rules.longest_word,
        "vocab": {piece: number for number, piece in enumerate(tokenizer.pieces) if piece not in rules.outside},
    }
    return tokenizer_json(
        [*control, *tokenizer.cut_tokens],
        normalizer={"type": "BertNormalizer"} | normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=as_template(cls, sep, rules.separators_between, rules.second_segment_id),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model=model,
    )


_SUFFIX = "##"
_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]|<S>|<T>")
_MARK = b"\xef\xbb\xbf"


class WordPieceTokenizer(Tokenizer):
    """A WordPiece `Tokenizer` from a file with one piece per line; ids count lines from 0.

    Raises UserError if the file is damaged or unsupported.
    """

    kind = "wordpiece"
    file_name = "vocab.txt"

    def __init__(
        self,
        vocabulary: bytes,
        lower_case: bool = True,
        path: str | os.PathLike = "vocab.txt",
        keep_accents: bool = False,
        rules: WordPieceRules = BERT_RULES,
    ):
        # Windows editors write a byte-order mark.
        vocabulary = vocabulary.removeprefix(_MARK)
        # Without lower case BERT keeps them anyway.
        super().__init__(vocabulary, lower_case, keep_accents and lower_case)
        self.rules = rules
        try:
            # Some editors write a byte-order mark.
            lines = vocabulary.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"tokenizer '{path}' is not UTF-8 text; SentencePiece models end in .model") from error
        self.pieces = [line.rstrip("\r") for line in (lines[:-1] if not lines[-1] else lines)]
        self.separators_between, self.second_segment_id = rules.separators_between, rules.second_segment_id
        names = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")} | dict(rules.names)
        for role, piece in names.items():
            if piece not in self.piece_ids:
                raise UnknownTokenizer(
                    f"tokenizer '{path}' has no line {piece}, it is not a WordPiece vocabulary; give one, or {BY_IDS}"
                )
            setattr(self, f"{role}_id", self.piece_ids[piece])
        self.characters = CharacterRules(
            lower_case,
            (lower_case and not keep_accents) or rules.strip_accents,
            *(rules.clean, rules.chinese, rules.of_library),
        )
        added = [token for token in rules.added if token.content in self.piece_ids]
        self.cut_tokens = [dataclasses.replace(token, id=self.piece_ids[token.content]) for token in added]
        self._cutter = None
        if added:
            # Few vocabularies have tokens that are cut before all others.
            from tfrecords.tokenizers.bytes.cut_tokens import TokenCutter

            self._cutter = TokenCutter(self.cut_tokens, self.characters, str(path))
        if any(len(token.content) >= rules.longest_word for token in self.cut_tokens):
            raise UnknownTokenizer(f"'{path}' adds a token of {rules.longest_word} or more characters")

    def options(self) -> dict[str, Any]:
        return super().options() | {"rules": self.rules}

    def with_pieces(self, pieces: Sequence[str]) -> Self:
        return self.with_vocabulary("".join(f"{piece}\n" for piece in pieces).encode())

    @cached_property
    def sha256(self) -> str:
        more = self.rules.digest_text()
        return hashlib.sha256(f"{super().sha256} {more}".encode()).hexdigest() if more else super().sha256

    def description(self) -> dict[str, Any]:
        values = self.rules.values()
        return super().description() | ({"rules": values} if values else {})

    def published_files(self) -> dict[str, bytes]:
        if not self.rules.digest_text():
            return super().published_files()
        names = {f"{role}_token": piece for role, piece in self.rules.names}
        more = {
            "tokenizer.json": as_tokenizer_json(self),
            "special_tokens_map.json": json.dumps(names).encode(),
        }
        return super().published_files() | more

    def normalized(self, text: str) -> str:
        """Normalized words of a text, with one blank between them.

        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        >>> WordPieceTokenizer("\\n".join(pieces).encode()).normalized("Café (1,5)")
        'cafe ( 1 , 5 )'
        """
        return " ".join("".join(map(self.characters.all, text)).split())

    @cached_property
    def word_starts(self) -> np.ndarray:
        return np.array([not piece.startswith(_SUFFIX) for piece in self.pieces])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        return [piece.removeprefix(_SUFFIX).encode() for piece in self.pieces]

    @cached_property
    def special_ids(self) -> np.ndarray:
        special = {token.id for token in self.cut_tokens if token.special}
        special |= {token_id for token_id, piece in enumerate(self.pieces) if _SPECIAL.fullmatch(piece)}
        return np.array(sorted(special | {self.piece_ids[piece] for _, piece in self.rules.names}), np.int32)

    @property
    def added_ids(self) -> set[int]:
        named = {self.piece_ids[piece] for piece in self.rules.outside if piece in self.piece_ids}
        return named | {number for number, piece in enumerate(self.pieces) if piece.startswith("[unused")}

    @property
    def _model_ids(self) -> dict[str, int]:
        return {piece: number for piece, number in self.piece_ids.items() if piece not in self.rules.outside}

    @cached_property
    def _trie(self) -> tuple[np.ndarray, np.ndarray, int]:
        edges, ids, nodes = build_trie([*self._model_ids.items(), (_SUFFIX, -1)])
        return edges, ids, nodes[-1]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.encode_with_offsets(texts)[:2]

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Like `Tokenizer.encode_with_offsets`; a dropped character belongs to the one before it."""
        read = self.as_read(texts)
        if self._cutter is None:
            codes = np.frombuffer("".join(read).encode("utf-32-le", "surrogatepass"), np.uint32)
            text_splits = np.cumsum([0] + [len(text) for text in read])
            ids, row_splits, offsets = self._encode(codes, text_splits, "all")
            return ids, row_splits, self.as_written(texts, row_splits, offsets)
        codes, text_splits, places = self._cutter.read(read)
        ids, row_splits, offsets = self._encode(codes, text_splits, "split" if self._cutter.later else "all")
        offsets += np.repeat(text_splits[:-1], np.diff(row_splits)).astype(np.int32)[:, None]
        offsets = np.stack([places[offsets[:, 0], 0], places[offsets[:, 1] - 1, 1]], axis=1)
        return ids, row_splits, self.as_written(texts, row_splits, offsets)

    def _encode(self, codes: np.ndarray, text_splits: np.ndarray, step: str) -> tuple[np.ndarray, ...]:
        table = character_table(self.characters, step)
        return _encode(codes, text_splits, *table, *self._trie, self.unk_id, self.rules.longest_word)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.pieces[i] for i in ids).replace(f" {_SUFFIX}", "")

    def _graph(self):
        from tfrecords.tokenizers.in_graph import WordPieceInGraph

        first, later = (self._cutter.first, self._cutter.later) if self._cutter else ([], [])
        tables = [character_table(self.characters, step) for step in (("normal", "split") if later else ("all",))]
        return WordPieceInGraph(
            self._model_ids, self.pieces[self.unk_id], tables, self.rules.longest_word, first, later
        )


@compiled
def _encode(codes, text_splits, pages, rows, expansions, edges, ids, suffix, unk_id, longest):
    width = expansions.shape[1]
    word = np.empty(longest + 1, np.int64)
    # Spans of the word's characters; dropped ones belong to the one before.
    places = np.empty((longest + 1, 2), np.int32)
    # A character gives at most as many pieces as it has characters after expansion.
    out = np.empty(len(codes) * width + 1, np.int32)
    offsets = np.empty((len(codes) * width + 1, 2), np.int32)
    splits = np.zeros(len(text_splits), np.int64)
    count = 0
    for text in range(len(text_splits) - 1):
        length = 0
        for position in range(text_splits[text], text_splits[text + 1]):
            code = np.int64(codes[position])
            if code >= FIRST_TOKEN:
                count = _put_word(word[:length], places, out, offsets, count, edges, ids, suffix, unk_id, longest)
                length = 0
                out[count] = code - FIRST_TOKEN
                offsets[count, 0], offsets[count, 1] = position - text_splits[text], position - text_splits[text] + 1
                count += 1
                continue
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
                    count = _put_word(word[:length], places, out, offsets, count, edges, ids, suffix, unk_id, longest)
                    length = 0
                elif length <= longest:
                    word[length] = target
                    places[length, 0], places[length, 1] = place, place + 1
                    length += 1
                else:
                    places[longest, 1] = place + 1
        count = _put_word(word[:length], places, out, offsets, count, edges, ids, suffix, unk_id, longest)
        splits[text + 1] = count
    return out[:count].copy(), splits, offsets[:count].copy()


@compiled
def _put_word(word, places, out, offsets, count, edges, ids, suffix, unk_id, longest):
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
        if piece < 0 or len(word) > longest:
            out[first] = unk_id
            offsets[first, 0], offsets[first, 1] = places[0, 0], places[len(word) - 1, 1]
            return first + 1
        out[count] = piece
        offsets[count, 0], offsets[count, 1] = places[start, 0], places[end - 1, 1]
        count += 1
        start = end
    return count
