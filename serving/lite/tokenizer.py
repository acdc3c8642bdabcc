"""Converts texts to ids by the libraries `sentencepiece` and `tokenizers`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.lite.description import TokenizerRules
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.by_library import (
    Blanks,
    SentencePieceLibrary,
    TokenizersLibrary,
    check_ids,
    places_before_lowering,
)


class LiteTokenizer:
    """The tokenizer of a version; its ids are those of the tokenizer that the version was written from.

    It has the attributes of its rules, as `tfrecords.tokenizers.base.Tokenizer` has them.
    """

    cls_last = False

    def __init__(self, rules: TokenizerRules, content: bytes):
        self.rules = rules
        try:
            self._read(content)
        except Exception as error:
            # The library `tokenizers` raises nothing narrower.
            raise UserError(f"'{rules.file}' cannot be read: {str(error)[:200]}; export the model again") from error

    def _read(self, content: bytes) -> None:
        # A process loads one of the libraries: the other would cost it 10 MB.
        if self.rules.kind == "sentencepiece":
            from sentencepiece import SentencePieceProcessor

            processor = SentencePieceProcessor(model_proto=content)
            parts = {int(number): ids for number, ids in self.rules.parts.items()}
            blanks = Blanks(self.rules.no_blank_before, self.rules.last_blank)
            self._library: Any = SentencePieceLibrary(processor, parts, blanks)
            self._piece = processor.id_to_piece
        else:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_str(content.decode())
            self._library, self._piece = (
                TokenizersLibrary(tokenizer, self.rules.kind == "wordpiece"),
                tokenizer.id_to_token,
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rules, name)

    def id_to_piece(self, token_id: int) -> str:
        return self._piece(token_id) or f"[unused{token_id}]"

    def encode_batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, int32, and their row splits, int64 [texts + 1]."""
        return self._library.encode_batch(self._as_read(texts))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the results of `encode_batch`, and each token's characters in its text, int32 [tokens, 2]."""
        ids, splits, offsets = self._library.encode_with_offsets(self._as_read(texts))
        return ids, splits, places_before_lowering(texts, splits, offsets) if self.rules.lowers_first else offsets

    def _as_read(self, texts: Sequence[str]) -> Sequence[str]:
        return [text.lower() for text in texts] if self.rules.lowers_first else texts

    def check_ids(self, ids: np.ndarray) -> None:
        """Raises UserError for an id without a row in the embedding table."""
        check_ids(ids, self.rules.table_rows, self.id_to_piece)
