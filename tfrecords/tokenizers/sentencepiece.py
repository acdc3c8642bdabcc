"""SentencePiece as in ALBERT, with its normalization, and commas after digits as separate pieces."""

import os
import string
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.by_library import WORD_BOUNDARY, Blanks, SentencePieceLibrary
from tfrecords.tokenizers.normalization import blanks_of, own_rules, with_albert_normalization
from tfrecords.tokenizers.unigram import UnigramSegmenter, can_segment
from tfrecords.tokenizers.unigram_file import as_tokenizer_json
from tfrecords.tokenizers.words import is_spaced_letter

# The strings of "cls", "sep" and "mask": ALBERT's, XLNet's, and fairseq's, which XLNet's vocabularies have, too.
ROLES = (("[CLS]", "[SEP]", "[MASK]"), ("<cls>", "<sep>", "<mask>"), ("<s>", "</s>", "<mask>"))
# google-research/albert create_pretraining_data.py:393-423: these begin a word, and so does any piece that holds a
# character which is neither one of them nor an English letter.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_ENGLISH = frozenset(string.ascii_lowercase) | _PUNCTUATION


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece `Tokenizer`; adds ALBERT's normalization to a published model.

    If a model already has this normalization, its rules decide case and accents, but `keep_accents=False` strips
    accents.
    """

    kind = "sentencepiece"
    file_name = "spiece.model"

    def __init__(
        self,
        vocabulary: bytes,
        lower_case: bool | None = None,
        path: str | os.PathLike = "model",
        keep_accents: bool | None = None,
    ):
        try:
            lowers, kept = own_rules(vocabulary)
            self.knows_case = lowers is not None
            lower_case = lowers is not False if lower_case is None else lower_case
            keep_accents = bool(kept) if keep_accents is None else keep_accents
            if lowers not in (None, lower_case) or (keep_accents and kept is False):
                does = ("keeps capitals", "lower-cases")[lowers] + " and strips accents" * (not kept)
                raise UserError(
                    f"tokenizer '{path}' {does} by its own rules; give no other --lower_case or --keep_accents, or "
                    "train another with python -m tfrecords.train_tokenizer"
                )
            vocabulary = with_albert_normalization(vocabulary, lower_case, keep_accents)
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary)
            pieces = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        except UserError:
            raise
        except Exception as error:  # protobuf and sentencepiece raise types of their own
            raise UserError(f"tokenizer '{path}' is not a SentencePiece model; WordPiece ends in .txt") from error
        super().__init__(vocabulary, lower_case, keep_accents)
        self.pieces = pieces
        self.pad_id, self.unk_id = self._special("<pad>", path), self._special("<unk>", path)
        names = next((names for names in ROLES if names[0] in self.pieces), ROLES[0])
        self.cls_id, self.sep_id, self.mask_id = (self._special(name, path) for name in names)
        self.is_of_fairseq = names == ROLES[-1]
        if self.is_of_fairseq:
            self.separators_between, self.second_segment_id = 2, 0

    def _special(self, piece: str, path: str | os.PathLike) -> int:
        token_id = self._processor.piece_to_id(piece)
        if self._processor.id_to_piece(token_id) != piece:
            raise UnknownTokenizer(
                f"tokenizer '{path}' has no piece {piece}, as the vocabularies of ALBERT, XLNet and fairseq have;"
                f" train one with python -m tfrecords.train_tokenizer, or {BY_IDS}"
            )
        return token_id

    @cached_property
    def word_starts(self) -> np.ndarray:
        starts = [_starts_word(piece) for piece in self.pieces]
        return np.array(starts) & ~np.array([self._processor.is_byte(i) for i in range(self.vocab_size)])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        # A byte's piece is <0x97>.
        return [
            bytes([int(piece[3:5], 16)]) if self._processor.is_byte(i) else piece.replace(WORD_BOUNDARY, " ").encode()
            for i, piece in enumerate(self.pieces)
        ]

    @cached_property
    def special_ids(self) -> np.ndarray:
        is_special = [
            self._processor.is_control(i) or self._processor.is_unknown(i) or self._processor.is_unused(i)
            for i in range(self.vocab_size)
        ]
        return np.flatnonzero(is_special).astype(np.int32)

    @cached_property
    def digit_comma_splits(self) -> dict[int, list[int]]:
        """Ids that replace each piece ending in a digit and a comma, as ALBERT's tokenization.py:53-88 intends.

        The piece without its comma is encoded with the same word boundary; the comma follows.
        """
        if self.blanks is not None:  # The `tokenizers` library has no such rule.
            return {}
        return {
            token_id: self._encode_inside(piece[:-1]) + [self._processor.piece_to_id(",")]
            for token_id, piece in enumerate(self.pieces)
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        }

    def _encode_inside(self, piece: str) -> list[int]:
        encoded = self._processor.encode(piece.replace(WORD_BOUNDARY, ""), out_type=str)
        if not piece.startswith(WORD_BOUNDARY) and encoded[0].startswith(WORD_BOUNDARY):
            encoded[0] = encoded[0].removeprefix(WORD_BOUNDARY)
        return [self._processor.piece_to_id(part) for part in encoded if part]

    @cached_property
    def _digit_comma_table(self) -> tuple[np.ndarray, np.ndarray]:
        rows = [self.digit_comma_splits.get(i, [i]) for i in range(self.vocab_size)]
        return np.concatenate(rows).astype(np.int32), np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)

    @cached_property
    def _segmenter(self) -> UnigramSegmenter | None:
        proto = model_pb2.ModelProto.FromString(self.vocabulary)
        return UnigramSegmenter(proto, self._digit_comma_table) if can_segment(proto) else None

    @cached_property
    def blanks(self) -> Blanks | None:
        return blanks_of(self.vocabulary)

    @cached_property
    def _library(self) -> SentencePieceLibrary:
        return SentencePieceLibrary(self._processor, self.digit_comma_splits, self.blanks or Blanks())

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        texts = self.as_read(texts)
        if self._segmenter is None:
            return self._library.encode_batch(texts)
        return self._library.with_last_blanks(texts, *self._segmenter.encode(texts))[:2]

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, splits, offsets = self._library.encode_with_offsets(self.as_read(texts))
        return ids, splits, self.as_written(texts, splits, offsets)

    def published_files(self) -> dict[str, bytes]:
        if not self.is_of_fairseq:
            return super().published_files()
        return {"tokenizer.json": as_tokenizer_json(self)}

    def decode(self, ids: Sequence[int]) -> str:
        return self._processor.decode([int(i) for i in ids])

    def _graph(self):
        from tfrecords.tokenizers.in_graph import SentencePieceInGraph

        blank_id = self._processor.piece_to_id(WORD_BOUNDARY)
        return SentencePieceInGraph(self.vocabulary, *self._digit_comma_table, self.blanks, blank_id)


def _starts_word(piece: str) -> bool:
    if piece in _PUNCTUATION or piece.startswith((WORD_BOUNDARY, "<")):
        return True
    return not all(character.lower() in _ENGLISH or is_spaced_letter(character) for character in piece)
