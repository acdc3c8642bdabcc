"""Tokenizers: a fast Python side and an in-graph twin that give the same ids on the same text, but for SentencePiece's
ties (see `unigram`).

`load_tokenizer` is the door. The two kinds live in `sentencepiece_tokenizer` (ALBERT) and `wordpiece_tokenizer` (BERT
and the Chinese ALBERTs).
"""

import abc
import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.hub import download_hint

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer(abc.ABC):
    """Text to ids and back. Subclasses give the pieces; all else follows from them.

    Attributes:
        kind: "sentencepiece" or "wordpiece".
        lower_case: whether text is lower-cased.
        keep_accents: whether accents stay where ALBERT (always) and BERT (of lower-cased text) strip them.
        vocabulary: the bytes of the vocabulary file, with ALBERT's normalisation inside for SentencePiece.
        pieces: every piece (str), by id.
    """

    kind: str
    file_name: str
    pieces: list[str]
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    unk_id: int

    def __init__(self, vocabulary: bytes, lower_case: bool, keep_accents: bool = False):
        self.vocabulary = vocabulary
        self.lower_case, self.keep_accents = lower_case, keep_accents

    def __reduce__(self):
        return type(self), (self.vocabulary, self.lower_case, type(self).file_name, self.keep_accents)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @cached_property
    def sha256(self) -> str:
        """Of kind, lower_case, keep_accents and the vocabulary: equal if and only if the ids are."""
        # Those from before accents could be kept stay what they were.
        rules = f"{self.kind} {self.lower_case}{' keep_accents' if self.keep_accents else ''}\n"
        return hashlib.sha256(rules.encode() + self.vocabulary).hexdigest()

    @property
    @abc.abstractmethod
    def word_starts(self) -> np.ndarray:
        """bool [vocab_size]: whether a piece begins a word, for whole-word masking."""

    @property
    @abc.abstractmethod
    def special_ids(self) -> np.ndarray:
        """int32, ascending: ids that are no text ([CLS], padding, unused ones) and never replace a masked token."""

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns (ids of all texts: int32 [tokens], row_splits: int64 [len(texts) + 1])."""

    @abc.abstractmethod
    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `encode_batch`, and where each token comes from.

        Returns (ids, row_splits, offsets int32 [tokens, 2]): text[begin:end] of its text, in characters, became the
        token. Both columns never fall within a text. White space before a word may belong to its first token; where one
        character became several tokens, SentencePiece gives it to the last, and the others are empty.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of the ids. It is lower-cased where the tokenizer is."""

    @abc.abstractmethod
    def in_graph(self):
        """A tf.Module, called on a string tensor [batch], giving a RaggedTensor int32 [batch, None] of the same ids
        (of segmentations with equal scores, it may choose another).

        It owns its vocabulary: tf.saved_model.save of a module that holds it needs no file beside it.
        """

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0].tolist()

    def id_to_piece(self, token_id: int) -> str:
        return self.pieces[token_id]

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the vocabulary and tokenizer.json, which `load_tokenizer(folder)` reads back."""
        folder = files.make_output_dir(folder)
        with files.replacing(folder / self.file_name) as temporary:
            temporary.write_bytes(self.vocabulary)
        description = {
            "kind": self.kind,
            "vocabulary": self.file_name,
            "lower_case": self.lower_case,
            "keep_accents": self.keep_accents,
            "sha256": self.sha256,
        }
        files.write_json(folder / TOKENIZER_FILE, description)


def load_tokenizer(path: str | os.PathLike, lower_case: bool = True, keep_accents: bool | None = None) -> Tokenizer:
    """Loads a SentencePiece .model, a WordPiece vocab .txt, or a folder: a saved tokenizer's, or a published model's.

    lower_case, keep_accents: as the vocabulary was made; a folder knows its own. Where keep_accents is None, a
    SentencePiece model knows it too, and anything else is taken to strip them. Raises UserError for anything else, for
    a folder whose vocabulary is not the one it was saved with, and for accents that the vocabulary itself strips.
    """
    path = Path(path)
    if not path.exists():
        mend = download_hint(path) or "give a .model, a vocab .txt or a folder with tokenizer.json"
        raise UserError(f"tokenizer '{path}' does not exist; {mend}")
    if path.is_dir():
        from tfrecords.tokenizers.published import is_own, read_tokenizer

        if not is_own(path / TOKENIZER_FILE):
            return read_tokenizer(path, keep_accents=keep_accents)
        tokenizer = _load_folder(path)
        if keep_accents not in (None, tokenizer.keep_accents):
            raise UserError(
                f"the tokenizer in '{path}' was saved with keep_accents={tokenizer.keep_accents}; "
                "leave out --keep_accents"
            )
        return tokenizer
    try:
        vocabulary = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read tokenizer '{path}': {error.strerror}") from error
    kind = "wordpiece" if path.suffix == ".txt" else "sentencepiece"
    return _build(kind, vocabulary, lower_case, keep_accents, path)


def _load_folder(folder: Path) -> Tokenizer:
    description = files.read_json(folder / TOKENIZER_FILE)
    try:
        path = folder / description["vocabulary"]
        rules = description["lower_case"], description.get("keep_accents", False)
        tokenizer = _build(description["kind"], path.read_bytes(), *rules, path)
        expected = description["sha256"]
    except (KeyError, TypeError) as error:
        raise UserError(f"'{folder / TOKENIZER_FILE}' is not a tokenizer's description; save it again") from error
    except OSError as error:
        raise UserError(f"cannot read the vocabulary of '{folder}': {error.strerror}") from error
    if tokenizer.sha256 != expected:
        raise UserError(f"'{path}' is not the vocabulary that '{folder / TOKENIZER_FILE}' describes; save it again")
    return tokenizer


def _build(kind: str, vocabulary: bytes, lower_case: bool, keep_accents: bool | None, path: Path) -> Tokenizer:
    # Imported here: each kind needs a library that the other does not.
    if kind == "sentencepiece":
        from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(vocabulary, lower_case, path, keep_accents)
    from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(vocabulary, lower_case, path, bool(keep_accents))
