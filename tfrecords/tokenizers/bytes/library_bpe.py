"""BPE of Gemma's and Llama 3's form, tokenized by the `tokenizers` library: of characters, or with rules of their own.

There are no operations for it in a SavedModel.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import NoReturn

import numpy as np
from tokenizers import Tokenizer as Library

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import WORD_BOUNDARY, AddedToken, TokenizersLibrary
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.bytes.byte_bpe_file import rules_of_library


class LibraryBPETokenizer(ByteBPETokenizer):
    """A BPE `Tokenizer` by the library and a tokenizer.json alone; strings of special tokens in a text are text."""

    read_rules = staticmethod(rules_of_library)
    sha256, published_files = Tokenizer.sha256, Tokenizer.published_files

    @cached_property
    def cut_tokens(self) -> list[AddedToken]:
        return [token for token in self.rules.added if not (token.special or token.content in self.rules.reserved)]

    @cached_property
    def special_ids(self) -> np.ndarray:
        return np.array(sorted({token.id for token in {*self.rules.added} - {*self.cut_tokens}}), np.int32)

    @cached_property
    def of_texts(self) -> bytes:
        """The file without special tokens, frames, truncation and padding."""
        values, matched = json.loads(self.vocabulary), {token.content for token in self.cut_tokens}
        values |= dict.fromkeys(("post_processor", "truncation", "padding"))
        values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] in matched]
        return json.dumps(values, ensure_ascii=False).encode()

    @cached_property
    def _library(self) -> TokenizersLibrary:
        return TokenizersLibrary(Library.from_str(self.of_texts.decode()), drops=False)

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        if "<0x00>" not in self.rules.ids:
            return super().piece_bytes
        return [
            bytes.fromhex(piece[3:5]) if piece[:3] == "<0x" else piece.replace(WORD_BOUNDARY, " ").encode()
            for piece in self.pieces
        ]

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._library.encode_batch(self.as_read(texts))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, splits, offsets = self._library.encode_with_offsets(self.as_read(texts))
        return ids, splits, self.as_written(texts, splits, offsets)

    @property
    def merge_ranks(self) -> NoReturn:  # type: ignore[override]
        """Those of a vocabulary that is cut; raises UserError."""
        raise UserError("a vocabulary of Gemma's or Llama 3's form is not changed here; leave it as it is")

    def _graph(self) -> NoReturn:
        raise UserError(
            "a tokenizer of Gemma's or Llama 3's form has no operations in a SavedModel; export with --inputs=ids, or"
            " for texts with --engine=litert"
        )
