"""SentencePiece as in ALBERT, with its normalization, and commas after digits as separate pieces."""

import itertools
import os
import re
import string
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import BY_IDS, Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.normalization import Blanks, blanks_of, own_rules, with_albert_normalization
from tfrecords.tokenizers.unigram import WORD_BOUNDARY, UnigramSegmenter, can_segment, expand
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
                f"tokenizer '{path}' has no piece {piece}, as the vocabularies of ALBERT, XLNet and XLM-RoBERTa have;"
                f" train one with python -m tfrecords.train_tokenizer, or {BY_IDS}"
            )
        return token_id

    @cached_property
    def word_starts(self) -> np.ndarray:
        return np.array([_starts_word(piece) for piece in self.pieces])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        return [piece.replace(WORD_BOUNDARY, " ").encode() for piece in self.pieces]

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
        if self._blanks is not None:  # The `tokenizers` library has no such rule.
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
    def _blanks(self) -> Blanks | None:
        return blanks_of(self.vocabulary)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        texts = self.as_read(texts)
        ids, splits = self._encode_by_library(texts) if self._segmenter is None else self._segmenter.encode(texts)
        return self._with_last_blanks(texts, ids, splits)[:2]

    def _encode_by_library(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        texts = self._with_first_blanks(texts)
        rows = self._processor.encode_as_numpy(list(texts)) if len(texts) else []
        splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        ids = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        return expand(ids, splits, *self._digit_comma_table)

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        texts, written = self.as_read(texts), texts
        longer = self._with_first_blanks(texts)
        rows = self._processor.encode(longer, return_type="offset_mapping") if len(texts) else []
        splits = np.cumsum([0] + [len(row["ids"]) for row in rows], dtype=np.int64)
        ids = np.fromiter(itertools.chain.from_iterable(row["ids"] for row in rows), np.int32, splits[-1])
        pairs = itertools.chain.from_iterable(itertools.chain.from_iterable(row["offsets"] for row in rows))
        offsets = np.fromiter(pairs, np.int32, 2 * splits[-1]).reshape(-1, 2)
        parts = np.diff(self._digit_comma_table[1])[ids]
        ends, cut = np.cumsum(parts), parts > 1
        offsets = np.repeat(offsets, parts, axis=0)
        offsets[np.repeat(cut, parts), 1] -= 1
        commas = ends[cut] - 1
        offsets[commas] = offsets[commas, 1:] + [0, 1]
        ids, splits = expand(ids, splits, *self._digit_comma_table)
        before = np.array([len(one) - len(text) for one, text in zip(longer, texts)], np.int32)
        offsets = np.maximum(offsets - np.repeat(before, np.diff(splits))[:, None], 0)
        ids, splits, offsets = self._with_last_blanks(texts, ids, splits, offsets)
        return ids, splits, self.as_written(written, splits, offsets)

    def _with_first_blanks(self, texts: Sequence[str]) -> list[str]:
        if self._blanks is None or not self._blanks.no_blank_before:
            return list(texts)
        has_none = re.compile(self._blanks.no_blank_before).fullmatch
        return [text if has_none(text) else f" {text}" for text in texts]

    def _with_last_blanks(
        self, texts: Sequence[str], ids: np.ndarray, splits: np.ndarray, offsets: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        offsets = np.zeros((len(ids), 2), np.int32) if offsets is None else offsets
        if self._blanks is None or not self._blanks.last_blank:
            return ids, splits, offsets
        is_last = re.compile(self._blanks.last_blank).fullmatch
        more = np.array([bool(is_last(text)) for text in texts], bool)
        ends = splits[1:][more]
        places = [(len(text) - 1, len(text)) for text, one in zip(texts, more) if one]
        ids = np.insert(ids, ends, self._processor.piece_to_id(WORD_BOUNDARY)).astype(np.int32)
        offsets = np.insert(offsets, ends, np.array(places, np.int32).reshape(-1, 2), axis=0)
        return ids, splits + np.append(0, np.cumsum(more)), offsets

    def published_files(self) -> dict[str, bytes]:
        if not self.is_of_fairseq:
            return super().published_files()
        return {"tokenizer.json": as_tokenizer_json(self)}

    def decode(self, ids: Sequence[int]) -> str:
        return self._processor.decode([int(i) for i in ids])

    def _graph(self):
        from tfrecords.tokenizers.in_graph import SentencePieceInGraph

        blank_id = self._processor.piece_to_id(WORD_BOUNDARY)
        return SentencePieceInGraph(self.vocabulary, *self._digit_comma_table, self._blanks, blank_id)


def _starts_word(piece: str) -> bool:
    if piece in _PUNCTUATION or piece.startswith((WORD_BOUNDARY, "<")):
        return True
    return not all(character.lower() in _ENGLISH or is_spaced_letter(character) for character in piece)
