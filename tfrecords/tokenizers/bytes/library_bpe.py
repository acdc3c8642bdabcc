"""BPE of Gemma's and Llama 3's form, tokenized by the `tokenizers` library: of characters, or with rules of their own.

There are no operations for it in a SavedModel.
"""

import json
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from tfrecords.base.errors import UserError
from tfrecords.base.files import parse_json
from tfrecords.tokenizers.base import Tokenizer, pieces_by_id
from tfrecords.tokenizers.by_library import WORD_BOUNDARY, AddedToken, TokenizersLibrary
from tfrecords.tokenizers.bytes.byte_bpe_file import ROLES, piece_bytes, role_name
from tfrecords.tokenizers.folders import other_files
from tfrecords.tokenizers.folders.folder_files import added_token
from tfrecords.tokenizers.folders.row_template import framing, usual_pair


class LibraryBPETokenizer(Tokenizer):
    """A BPE `Tokenizer` by the library and a tokenizer.json alone; text keeps its case and accents.

    Strings of special tokens in a text are text. roles: strings of special tokens, if they are not in the file.

    Raises UserError if the file is damaged or unsupported.
    """

    kind = "bpe"
    file_name = "tokenizer.json"

    def __init__(
        self, vocabulary: bytes, path: str | os.PathLike = "tokenizer.json", roles: dict[str, str] | None = None
    ):
        super().__init__(vocabulary, lower_case=False)
        self.values = parse_json(vocabulary, path)
        other_files.check_file(self.values, str(path))
        self.added = [added_token(token, token["id"]) for token in self.values.get("added_tokens") or []]
        ids = self.values["model"]["vocab"] | {token.content: token.id for token in self.added}
        ends, pair = framing(other_files.steps_of(self.values, "post_processor"), ids, str(path))
        self.roles = {role: role_name(role, (roles or {}) | ends, ids, str(path)) for role in ROLES}
        numbers = (ids[name] for name in self.roles.values())
        self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id = numbers
        pair = pair or usual_pair(self.roles["cls"])
        self.separators_between, self.second_segment_id = pair["separators_between"], pair["second_segment_id"]
        self.pieces = pieces_by_id(ids, "[unused{}]", path)

    def options(self) -> dict[str, Any]:
        return {"roles": self.roles}

    def description(self) -> dict[str, Any]:
        return super().description() | {"special_tokens": self.roles}

    @cached_property
    def cut_tokens(self) -> list[AddedToken]:
        own = set(self.roles.values())
        return [token for token in self.added if not (token.special or token.content in own)]

    @property
    def added_ids(self) -> set[int]:
        return {token.id for token in self.added}

    @cached_property
    def of_texts(self) -> bytes:
        """The file without special tokens, frames, truncation and padding."""
        matched = {token.content for token in self.cut_tokens}
        added = [token for token in self.values.get("added_tokens") or [] if token["content"] in matched]
        without = dict.fromkeys(("post_processor", "truncation", "padding"))
        return json.dumps(self.values | without | {"added_tokens": added}, ensure_ascii=False).encode()

    @cached_property
    def _library(self) -> TokenizersLibrary:
        from tokenizers import Tokenizer as Library

        return TokenizersLibrary(Library.from_str(self.of_texts.decode()), drops=False)

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        return [self._bytes_of(piece) for piece in self.pieces]

    def _bytes_of(self, piece: str) -> bytes:
        if not self.values["model"].get("byte_fallback"):
            return piece_bytes(piece) or piece.encode()
        is_byte = len(piece) == 6 and piece.startswith("<0x")
        return bytes([int(piece[3:5], 16)]) if is_byte else piece.replace(WORD_BOUNDARY, " ").encode()

    @cached_property
    def word_starts(self) -> np.ndarray:
        starts = np.array([data[:1].isspace() for data in self.piece_bytes])
        starts[self.special_ids] = True
        return starts

    @cached_property
    def special_ids(self) -> np.ndarray:
        matched = {token.id for token in self.cut_tokens}
        return np.array(sorted(self.added_ids - matched), np.int32)

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._library.encode_batch(self.as_read(texts))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, splits, offsets = self._library.encode_with_offsets(self.as_read(texts))
        return ids, splits, self.as_written(texts, splits, offsets)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.piece_bytes[number] for number in ids).decode("utf-8", "replace").removeprefix(" ")

    @property
    def rules(self) -> NoReturn:
        """Those of a vocabulary that is changed or compared; raises UserError."""
        raise UserError("a vocabulary of Gemma's or Llama 3's form is not changed or compared here; leave it as it is")

    def _graph(self) -> NoReturn:
        raise UserError(
            "a tokenizer of Gemma's or Llama 3's form has no operations in a SavedModel; export with --inputs=ids, or"
            " for texts with --engine=litert"
        )
