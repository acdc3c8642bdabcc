"""Refuses a vocabulary to which much of a corpus is unknown."""

import itertools
import os
from collections.abc import Sequence

import numpy as np

from tfrecords import corpus, sections
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

# Number of evenly spaced samples of the corpus, and about how many bytes of text each has.
_PLACES, _BYTES = 16, 1 << 16


def unknown_share(paths: Sequence[str | os.PathLike], tokenizer: Tokenizer, text_field: str = "text") -> float:
    """Returns unknown tokens' share of a corpus sample, 0 to 1."""
    tokens = unknown = 0
    total = sum(map(sections.text_bytes, paths))
    for piece in sections.plan_pieces(paths, max(total // _PLACES, _BYTES)):
        for chunk in itertools.islice(sections.read_chunks(piece[0], _BYTES), 1):
            texts = [text.decode() for text in corpus.read_texts(chunk, text_field) if isinstance(text, bytes)]
            ids, _ = tokenizer.encode_batch(texts)
            tokens += len(ids)
            unknown += int(np.count_nonzero(ids == tokenizer.unk_id))
    return unknown / max(tokens, 1)


def check_unknown_share(share: float, limit: float, tokenizer: Tokenizer) -> None:
    """Raises UserError if the share of unknown tokens exceeds `limit`."""
    if share > limit:
        raise UserError(
            f"{share:.0%} of the corpus's tokens are unknown to the tokenizer ({tokenizer.pieces[tokenizer.unk_id]}): "
            "it was made for another language or casing; train one on this text (python -m tfrecords.train_tokenizer), "
            "or --max_unknown_share=1 to build all the same"
        )
