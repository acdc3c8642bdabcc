"""Base class of tokenizers, with equal ids in Python and in a TensorFlow graph.

Only SentencePiece segmentations of equal score can differ (see `unigram`).
"""

import abc
import functools
import hashlib
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.by_library import AddedToken, check_ids, lost_message, lowered, places_before_lowering

# The file in a folder that describes this library's tokenizer.
DESCRIPTION_FILE = "albert_tokenizer.json"
DESCRIPTION_FORMAT = 1

BY_IDS = "tokenize with transformers, and ask the model by ids"


# What a folder's files may say of texts and rows, besides the vocabulary; see `Tokenizer`.
FOLDER_RULES = ("lowers_first", "odd_to_longer", "one_segment", "mask_keeps_blank")
# Published vocabularies leave a few thousand ids unused.
_MOST_UNUSED = 10**6


class UnknownTokenizer(UserError):
    """A published tokenizer is of an unsupported kind; the neural network beside it may be supported."""


class Tokenizer(abc.ABC):
    """Converts text to ids and back.

    Attributes:
        kind: "sentencepiece" (ALBERT), "wordpiece" (BERT, Chinese ALBERTs) or "bpe" (RoBERTa).
        keep_accents: whether accents stay; ALBERT always strips them, BERT strips them from lower-cased text.
        vocabulary: the vocabulary file; a SentencePiece file includes ALBERT's normalization.
        separators_between: number of `sep_id` between two texts: 2 in RoBERTa.
        second_segment_id: segment id of a pair's second text: 0 in RoBERTa.
        word_prefix: what precedes a word that is tokenized alone: a blank in byte-level BPE.
        cls_last: whether rows end with `cls_id`, in a segment of its own.
        knows_case: whether the vocabulary file states if text is lower-cased.
        cut_tokens: added tokens that are matched in a text before the rest is tokenized.
        added_ids: ids of added tokens, which a model's embedding table may lack.
        table_rows: a model's embedding rows, if fewer than pieces; `check_ids` refuses higher ids. 0: no limit.
        lowers_first: whether text is lower-cased before all else
            (sentence_transformers/base/modules/transformer.py, `do_lower_case`).
        odd_to_longer: whether of two texts that are cut to an odd number of tokens the longer one, or of equal ones the
            second, keeps one more (tokenizers, src/utils/truncation.rs); otherwise the first does.
        one_segment: whether all tokens have segment 0.
        mask_keeps_blank: whether in byte-level BPE a blank before a mask token is a token; else the mask takes it in.
    """

    kind: str
    file_name: str
    pieces: list[str]
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    unk_id: int
    separators_between: int = 1
    second_segment_id: int = 1
    word_prefix: str = ""
    cls_last: bool = False
    knows_case: bool = False
    cut_tokens: Sequence[AddedToken] = ()
    added_ids: set[int] = frozenset()  # type: ignore[assignment]
    table_rows: int = 0
    lowers_first: bool = False
    odd_to_longer: bool = False
    one_segment: bool = False
    mask_keeps_blank: bool = False

    def __init__(self, vocabulary: bytes, lower_case: bool, keep_accents: bool = False):
        self.vocabulary = vocabulary
        self.lower_case, self.keep_accents = lower_case, keep_accents

    def options(self) -> dict[str, Any]:
        """Returns the constructor's arguments except the vocabulary."""
        return {"lower_case": self.lower_case, "keep_accents": self.keep_accents}

    def __reduce__(self):
        names = ("cls_last", "table_rows", "second_segment_id", *FOLDER_RULES)
        state = {name: getattr(self, name) for name in names}
        return functools.partial(type(self), **self.options()), (self.vocabulary,), state

    def with_vocabulary(self, vocabulary: bytes, **changes: Any) -> Self:
        """Returns a tokenizer with another vocabulary and this one's options, except for `changes`."""
        other = type(self)(vocabulary, **self.options() | changes)
        return other.with_rules(self.rules_of_folder)

    def with_cls_last(self, cls_last: bool) -> Self:
        return self if cls_last == self.cls_last else self._with(cls_last=cls_last)

    @property
    def rules_of_folder(self) -> list[str]:
        return [name for name in FOLDER_RULES if getattr(self, name)]

    def with_rules(self, names: Sequence[str]) -> Self:
        """Returns a tokenizer with these of FOLDER_RULES."""
        values: dict[str, Any] = dict.fromkeys(names, True)
        values |= {"second_segment_id": 0} if "one_segment" in names else {}
        return self._with(**values) if names else self

    def with_table_rows(self, rows: int) -> Self:
        return self._with(table_rows=rows)

    def check_ids(self, ids: np.ndarray) -> None:
        """Raises UserError for an id without a row in the embedding table."""
        check_ids(ids, self.table_rows, self.id_to_piece)

    def _with(self, **values: bool | int) -> Self:
        # copy.copy would make a tokenizer anew from its vocabulary.
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | values
        other.__dict__.pop("sha256", None)
        return other

    def as_read(self, texts: Sequence[str]) -> Sequence[str]:
        return lowered(texts) if self.lowers_first else texts

    def as_written(self, texts: Sequence[str], row_splits: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return places_before_lowering(texts, row_splits, offsets) if self.lowers_first else offsets

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @functools.cached_property
    def piece_ids(self) -> dict[str, int]:
        """Maps each piece to its id; of equal pieces, the last counts."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    @functools.cached_property
    def sha256(self) -> str:
        """Digest of kind, vocabulary, and case and accent rules; tokenizers with equal digests have equal ids."""
        rules = f"{self.kind} {self.lower_case}{' keep_accents' * self.keep_accents}"
        rules += f"{' lowers_first' * self.lowers_first}\n"
        return hashlib.sha256(rules.encode() + self.vocabulary).hexdigest()

    @property
    @abc.abstractmethod
    def word_starts(self) -> np.ndarray:
        """Whether each piece begins a word where white space parts words, bool [vocab_size]; see `words`."""

    @functools.cached_property
    def piece_bytes(self) -> list[bytes]:
        """Each piece's UTF-8 bytes, which may split characters; for a non-text token, its name."""
        return [piece.encode() for piece in self.pieces]

    @property
    @abc.abstractmethod
    def special_ids(self) -> np.ndarray:
        """Ids that are no text ([CLS], padding, unused ones), int32, ascending."""

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns (ids of all texts: int32 [tokens], row_splits: int64 [len(texts) + 1])."""

    @abc.abstractmethod
    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the ids and row_splits of `encode_batch`, and each token's span in its text, int32 [tokens, 2].

        Spans are text[begin:end], in characters; both columns never decrease within a text. White space before a word
        may belong to its first token. If one character becomes several tokens, SentencePiece gives it to the last one;
        the others' spans are empty.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns readable text, lower-cased if the tokenizer lower-cases."""

    def in_graph(self):
        """Returns a tf.Module that converts strings [batch] to the ids of `encode_batch`, ragged int32 [batch, None].

        A call fails for a text that `check_ids` refuses. A SavedModel of the module needs no other file.
        """
        from tfrecords.tokenizers.in_graph import CheckedInGraph, LoweredInGraph

        graph = self._graph()
        graph = LoweredInGraph(graph) if self.lowers_first else graph
        lost = [repr(token.content) for token in self.cut_tokens if 0 < self.table_rows <= token.id]
        return (
            CheckedInGraph(graph, self.table_rows, lost_message(" or ".join(lost), self.table_rows)) if lost else graph
        )

    @abc.abstractmethod
    def _graph(self):
        """Returns the module of `in_graph` without lower-casing and checks."""

    def published_files(self) -> dict[str, bytes]:
        """Maps transformers' file names to the tokenizer's file contents."""
        return {self.file_name: self.vocabulary}

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0].tolist()

    def id_to_piece(self, token_id: int) -> str:
        return self.pieces[token_id]

    def description(self) -> dict[str, Any]:
        """Returns what `load_tokenizer` needs besides the vocabulary file."""
        return {
            "kind": self.kind,
            "vocabulary": self.file_name,
            "lower_case": self.lower_case,
            "keep_accents": self.keep_accents,
            "sha256": self.sha256,
        } | dict.fromkeys(self.rules_of_folder, True)

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the files that `load_tokenizer(folder)` reads."""
        folder = files.make_output_dir(folder)
        files.write(folder / self.file_name, self.vocabulary)
        files.write_json(folder / DESCRIPTION_FILE, {"format_version": DESCRIPTION_FORMAT} | self.description())


def check_last_id(last: int, pieces: int, where: str | os.PathLike) -> None:
    """Raises UserError if the last id is far above the number of pieces."""
    if last >= pieces + _MOST_UNUSED:
        raise UserError(f"'{where}' has the id {last:,} but {pieces:,} pieces; copy or download it again")


def pieces_by_id(ids: dict[str, int], unused: str, where: str | os.PathLike) -> list[str]:
    """Returns the pieces in the order of their ids; an id without a piece gets `unused`, so that later ids stay."""
    pieces = {number: piece for piece, number in ids.items()}
    check_last_id(max(pieces), len(pieces), where)
    return [pieces.get(number, unused.format(number)) for number in range(max(pieces) + 1)]
