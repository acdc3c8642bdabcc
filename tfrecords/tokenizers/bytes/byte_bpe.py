"""Byte-level BPE as in RoBERTa: no text is unknown, and special tokens' strings in a text are ordinary text.

Lone surrogates and bytes that are not UTF-8 become U+FFFD.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tfrecords.base.files import parse_json
from tfrecords.tokenizers.base import Tokenizer, pieces_by_id
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.bytes.byte_bpe_file import ROLES, as_tokenizer_json, parse_rules, piece_bytes
from tfrecords.tokenizers.bytes.byte_segmenter import ByteSegmenter
from tfrecords.tokenizers.bytes.cut_tokens import TextReader, check_cut_tokens
from tfrecords.tokenizers.characters import FIRST_TOKEN
from tfrecords.tokenizers.folders.other_files import CONTROL_TOKENS

_UNUSED = re.compile(r"\[unused\d+\]|madeupword\d+")


class ByteBPETokenizer(Tokenizer):
    """A byte-level BPE `Tokenizer` from a tokenizer.json of the `tokenizers` library; text keeps its case and accents.

    roles: strings of the special tokens "cls", "sep", "pad", "unk" and "mask", if unusual and not in the file.

    Raises UserError if the file is damaged or unsupported.
    """

    kind = "bpe"
    file_name = "tokenizer.json"
    word_prefix = " "
    read_rules = staticmethod(parse_rules)

    def __init__(
        self,
        vocabulary: bytes,
        path: str | os.PathLike = "tokenizer.json",
        roles: dict[str, str] | None = None,
    ):
        super().__init__(vocabulary, lower_case=False)
        values = parse_json(vocabulary, path)
        self.rules = self.read_rules(values, roles or {}, str(path))
        check_cut_tokens(self.cut_tokens, str(path))
        ids = self.rules.ids
        self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id = (
            ids[self.rules.roles[role]] for role in ROLES
        )
        self.separators_between, self.second_segment_id = self.rules.separators_between, self.rules.second_segment_id
        self.pieces = pieces_by_id(ids, "[unused{}]", path)

    def options(self) -> dict[str, Any]:
        return {"roles": self.rules.roles}

    @cached_property
    def sha256(self) -> str:
        # False as in the digests of records and models that are there.
        values = json.dumps([self.rules.as_values(), False], sort_keys=True)
        values += " lowers_first" * self.lowers_first
        return hashlib.sha256(f"bpe\n{values}".encode()).hexdigest()

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        contents = {token.id: token.content.encode() for token in self.rules.added}
        found = ((contents.get(number), piece) for number, piece in enumerate(self.pieces))
        return [piece_bytes(piece) or piece.encode() if content is None else content for content, piece in found]

    @property
    def added_ids(self) -> set[int]:
        unused = {number for number, piece in enumerate(self.pieces) if piece not in self.rules.ids}
        return unused | {token.id for token in self.rules.added}

    @cached_property
    def cut_tokens(self) -> list[AddedToken]:
        control = CONTROL_TOKENS | set(self.rules.roles.values())
        added = [token for token in self.rules.added if not (token.special and token.content in control)]
        return sorted(added, key=lambda token: -len(token.content))

    @cached_property
    def special_ids(self) -> np.ndarray:
        cut = {token.id for token in self.rules.added if not token.special and not _UNUSED.fullmatch(token.content)}
        text = cut | set(np.flatnonzero(self.merge_ranks > -2).tolist())
        return np.setdiff1d(np.arange(self.vocab_size), list(text)).astype(np.int32)

    @cached_property
    def merge_ranks(self) -> np.ndarray:
        """Rank of the merge that makes each piece: int64 [vocab_size]; -1 for a byte, -2 if no text yields it."""
        ranks = np.full(self.vocab_size, -2, np.int64)
        pieces = [(number, data) for piece, number in self.rules.ids.items() if (data := self._mergeable(piece))]
        numbers = np.array([number for number, _ in pieces])
        ranks[numbers] = self._segmenter.last_merges([data for _, data in pieces])
        return ranks

    @cached_property
    def merged_of(self) -> dict[int, tuple[int, int]]:
        made = np.flatnonzero(self.merge_ranks >= 0)
        return {int(number): tuple(self._merges[self.merge_ranks[number], :2].tolist()) for number in made}

    def _mergeable(self, piece: str) -> bytes | None:
        return None if piece in self.rules.reserved else piece_bytes(piece)

    @cached_property
    def _merges(self) -> np.ndarray:
        ids = self.rules.ids
        merges = [
            (ids[left], ids[right], ids[left + right])
            for left, right in self.rules.merges
            if left + right not in self.rules.reserved
        ]
        return np.array(merges, np.int32).reshape(-1, 3)

    @cached_property
    def _segmenter(self) -> ByteSegmenter:
        byte_ids = np.full(256, -1, np.int32)
        for piece, number in self.rules.ids.items():
            data = self._mergeable(piece)
            if data is not None and len(data) == 1:
                byte_ids[data[0]] = number
        return ByteSegmenter(byte_ids, self._merges)

    @cached_property
    def _reader(self) -> TextReader:
        return TextReader(self.cut_tokens, self.rules.add_prefix_space, self.rules.compose)

    @cached_property
    def word_starts(self) -> np.ndarray:
        """Whether each piece begins with white space, as in fairseq/data/encoders/gpt2_bpe.py."""
        starts = np.array([data[:1].isspace() for data in self.piece_bytes])
        starts[self.special_ids] = True
        return starts

    @cached_property
    def offset_trims(self) -> np.ndarray:
        """Number of white-space characters to trim from offsets at each piece's two ends, int32 [vocab_size, 2].

        In pieces written as bytes only blanks count, as in the `tokenizers` library.
        """
        if not self.rules.trim_offsets:
            return np.zeros((self.vocab_size, 2), np.int32)
        blanks = [re.sub(r"\s", "Ġ", piece) for piece in self.pieces]
        sides = [(len(piece) - len(piece.lstrip("Ġ")), len(piece) - len(piece.rstrip("Ġ"))) for piece in blanks]
        return np.array(sides, np.int32)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._segmenter.encode(*self._reader.read(self.as_read(texts)))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, text_splits, places = self._reader.read_with_places(self.as_read(texts))
        ids, row_splits = self._segmenter.encode(codes, text_splits)
        sizes = np.array([len(data) for data in self.piece_bytes])
        is_token = codes >= FIRST_TOKEN
        code_sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000).astype(np.int64)
        code_sizes[is_token] = sizes[codes[is_token] - FIRST_TOKEN]
        ends, code_ends = np.cumsum(sizes[ids]), np.cumsum(code_sizes)
        first = np.searchsorted(code_ends, ends - np.diff(ends, prepend=0), side="right")
        last = np.searchsorted(code_ends, ends, side="left")
        starts, ends = places[first, 0], places[last, 1]
        lead, trail = self.offset_trims[ids].T
        # One blank may be the added prefix.
        if self.rules.keep_first_space:
            lead = np.where((starts == 0) & (lead == 1), 0, lead)
        starts = np.minimum(starts + lead, ends)
        ends = np.maximum(ends - trail, starts)
        return ids, row_splits, self.as_written(texts, row_splits, np.stack([starts, ends], axis=1).astype(np.int32))

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.piece_bytes[number] for number in ids).decode("utf-8", "replace")

    def description(self) -> dict[str, Any]:
        return super().description() | {"special_tokens": self.rules.roles}

    def published_files(self) -> dict[str, bytes]:
        vocabulary = dict(sorted(self.rules.ids.items(), key=lambda item: item[1]))
        merges = "".join(f"{left} {right}\n" for left, right in self.rules.merges)
        return {
            "tokenizer.json": as_tokenizer_json(self.rules),
            "vocab.json": json.dumps(vocabulary, ensure_ascii=False).encode(),
            "merges.txt": f"#version: 0.2\n{merges}".encode(),
        }

    def _graph(self):
        from tfrecords.tokenizers.bytes.byte_bpe_in_graph import ByteBPEInGraph

        return ByteBPEInGraph(self.rules, self.cut_tokens, self.piece_bytes, self.merge_ranks, self.offset_trims)
