"""Compares two tokenizers, independent of their files' formats."""

from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.tokenizers.base import Tokenizer

SPECIAL = ("cls", "sep", "mask", "pad", "unk")
_RULES_OF_BYTES = ("merges", "compose", "add_prefix_space", "separators_between", "second_segment_id")
_NORMAL = model_pb2.ModelProto.SentencePiece.NORMAL
# Texts that show how a tokenizer changes a text before it looks for pieces: case, accents, wide letters, ligatures.
_SAMPLES = ("The Dog", "Été naïve", "Über Größe", "ＡＢＣ １２", "ﬁne ²", "Дом дом", "a  b")  # noqa: RUF001


def difference(given: Tokenizer, own: Tokenizer) -> str:
    """Describes a difference of `given` from `own`, such as "4,000 pieces, not 30,522"; else "".

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film"]
    >>> own, given = (WordPieceTokenizer("\\n".join(pieces + more).encode()) for more in ([], ["fine"]))
    >>> difference(own, own), difference(given, own)
    ('', '7 pieces, not 6')
    """
    if given.kind != own.kind:
        return f"kind {given.kind}, not {own.kind}"
    if given.vocab_size != own.vocab_size:
        return f"{given.vocab_size:,} pieces, not {own.vocab_size:,}"
    if said := special_difference(given, {role: getattr(own, f"{role}_id") for role in SPECIAL}):
        return said
    if given.pieces != own.pieces:
        number = next(number for number, piece in enumerate(given.pieces) if piece != own.pieces[number])
        return f"piece {number} is {given.pieces[number]!r}, not {own.pieces[number]!r}"
    for name in ("lower_case", "keep_accents", "lowers_first"):
        if getattr(given, name) != getattr(own, name):
            return f"{name} is {getattr(given, name)}, not {getattr(own, name)}"
    return _other_rules(given, own) or _other_ids(given, own)


def special_difference(tokenizer: Tokenizer, ids: dict[str, int]) -> str:
    """Describes the first special piece with an unexpected id, such as "[CLS] has the id 4, not 2"; else ""."""
    for role, expected in ids.items():
        found = getattr(tokenizer, f"{role}_id")
        if found != expected:
            return f"{tokenizer.pieces[found]} has the id {found}, not {expected}"
    return ""


def _other_rules(given: Any, own: Any) -> str:
    if given.kind == "bpe":
        names = (name for name in _RULES_OF_BYTES if getattr(given.rules, name) != getattr(own.rules, name))
        return next((f"other {name.replace('_', ' ')}" for name in names), "")
    if given.kind == "wordpiece" and given.rules.digest_text() != own.rules.digest_text():
        return "other rules of WordPiece"
    if given.kind == "sentencepiece" and given.vocabulary != own.vocabulary:
        theirs, ours = (model_pb2.ModelProto.FromString(one.vocabulary).pieces for one in (given, own))
        pairs = [(one.score, two.score) for one, two in zip(theirs, ours) if one.type == two.type == _NORMAL]
        if pairs and not np.allclose(*zip(*pairs), rtol=1e-5, atol=1e-6):
            return "other scores of its pieces"
    return ""


def _other_ids(given: Tokenizer, own: Tokenizer) -> str:
    text = next((text for text in _SAMPLES if given.encode(text) != own.encode(text)), None)
    return "" if text is None else f"other ids of the text {text!r}"
