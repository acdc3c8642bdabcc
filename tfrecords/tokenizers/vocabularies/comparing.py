"""Compares two tokenizers, independent of their files' formats."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import WORD_BOUNDARY

SPECIAL = ("cls", "sep", "mask", "pad", "unk")
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
    for name in ("lower_case", "keep_accents", "lowers_first", "separators_between", "second_segment_id"):
        if getattr(given, name) != getattr(own, name):
            return f"{name} is {getattr(given, name)}, not {getattr(own, name)}"
    if _rules(given) != _rules(own):
        return "other rules or merges"
    texts = (*_SAMPLES, own.decode(range(own.vocab_size)))
    text = next((text for text in texts if given.encode(text) != own.encode(text)), None)
    return "" if text is None else f"other ids of the text {text[:80]!r}"


def special_difference(tokenizer: Tokenizer, ids: dict[str, int]) -> str:
    """Describes the first special piece with an unexpected id, such as "[CLS] has the id 4, not 2"; else ""."""
    for role, expected in ids.items():
        found = getattr(tokenizer, f"{role}_id")
        if found != expected:
            return f"{tokenizer.pieces[found]} has the id {found}, not {expected}"
    return ""


def _rules(tokenizer: Any) -> Any:
    if tokenizer.kind == "bpe":
        return tokenizer.rules.merges, tokenizer.rules.compose, tokenizer.rules.add_prefix_space
    return tokenizer.rules.digest_text() if tokenizer.kind == "wordpiece" else None


_SUFFIX = "##"


class Carried(NamedTuple):
    """Maps each new piece to former pieces, as a ragged table; `kept`, `new`, `dropped` and `unknown` count pieces.

    ids: former ids, int64, concatenated. row_splits: int64 [pieces + 1]. unknown: new pieces mapped to [UNK].
    """

    ids: np.ndarray
    row_splits: np.ndarray
    kept: int
    new: int
    dropped: int
    unknown: int

    def __str__(self) -> str:
        return (
            f"{self.kept:,} pieces kept, {self.new:,} new from the mean of their former pieces, "
            f"{self.dropped:,} dropped"
            + f" ({self.unknown:,} of the new begin as the unknown piece)"
            * bool(self.unknown)
        )


def carry_over(tokenizer: Tokenizer, former: Tokenizer) -> Carried:
    """Maps each piece of a new vocabulary to former pieces.

    Special pieces are matched by role, others by their string; pieces without a match are tokenized by the former
    tokenizer. Raises UserError for different kinds.

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hepat", "##itis"]
    >>> former = WordPieceTokenizer("\\n".join(pieces).encode())
    >>> carried = carry_over(WordPieceTokenizer("\\n".join([*pieces, "hepatitis"]).encode()), former)
    >>> carried.ids[carried.row_splits[7] :].tolist(), str(carried)
    ([5, 6], '7 pieces kept, 1 new from the mean of their former pieces, 0 dropped')
    >>> str(carry_over(WordPieceTokenizer("\\n".join([*pieces, "é"]).encode()), former)).partition(" (")[2]
    '1 of the new begin as the unknown piece)'
    """
    if tokenizer.kind != former.kind:
        raise UserError(
            f"a vocabulary of kind {tokenizer.kind} cannot take over the pieces of one of kind {former.kind}; "
            "use one of the same kind"
        )
    roles = {getattr(tokenizer, f"{role}_id"): getattr(former, f"{role}_id") for role in SPECIAL}
    parts_of = _PARTS[tokenizer.kind](former)
    found, kept_ids, new, unknown = list[Sequence[int]](), set[int](), 0, 0
    for number, piece in enumerate(tokenizer.pieces):
        same = roles.get(number, former.piece_ids.get(piece))
        if same is None:
            parts = parts_of(tokenizer, number) or [former.unk_id]
            new += 1
            unknown += list(parts) == [former.unk_id]
        else:
            parts = [same]
            kept_ids.add(same)
        found.append(parts)
    ids = np.array([one for parts in found for one in parts], np.int64)
    splits = np.cumsum([0, *map(len, found)], dtype=np.int64)
    return Carried(ids, splits, len(found) - new, new, former.vocab_size - len(kept_ids), unknown)


# A function that takes the new tokenizer and a piece's id there, and returns the piece's former ids.
_Parts = Callable[[Any, int], Sequence[int]]


def _of_wordpiece(former: Any) -> _Parts:
    known = former.piece_ids

    def parts(tokenizer: Any, number: int) -> Sequence[int]:
        piece = tokenizer.pieces[number]
        if not piece.startswith(_SUFFIX) or piece == _SUFFIX:
            return former.encode(piece)
        # The longest first, as inside a word.
        rest, found = piece.removeprefix(_SUFFIX), list[int]()
        while rest:
            end = next((end for end in range(len(rest), 0, -1) if _SUFFIX + rest[:end] in known), 0)
            if not end:
                return [former.unk_id]
            found.append(known[_SUFFIX + rest[:end]])
            rest = rest[end:]
        return found

    return parts


def _of_sentencepiece(former: Any) -> _Parts:
    proto = model_pb2.ModelProto.FromString(former.vocabulary)
    # A piece within a word gets no boundary, and one that begins a word has its own.
    proto.normalizer_spec.add_dummy_prefix = proto.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return lambda tokenizer, number: processor.encode(tokenizer.pieces[number].replace(WORD_BOUNDARY, " "))


def _of_bytes(former: Any) -> _Parts:
    from tfrecords.tokenizers.bytes.byte_bpe_file import byte_characters

    ranks = {merge: rank for rank, merge in enumerate(former.rules.merges)}
    ids, characters = former.rules.ids, byte_characters()

    def parts(tokenizer: Any, number: int) -> Sequence[int]:
        data = tokenizer.piece_bytes[number]
        if tokenizer.merge_ranks[number] == -2:  # A token that is cut out of texts, or no text.
            return former.encode(data.decode())
        # former.encode cannot take part of a character or a piece within a word.
        return [ids.get(piece, former.unk_id) for piece in merged([characters[byte] for byte in data], ranks)]

    return parts


def merged(pieces: Sequence[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Merges a word's pieces as byte-level BPE does, the pair of the lowest rank first.

    >>> merged(list("abab"), {("a", "b"): 0, ("ab", "ab"): 1})
    ['abab']
    """
    pieces = list(pieces)
    while len(pieces) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(itertools.pairwise(pieces)))
        if rank == len(ranks):
            break
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


_PARTS: dict[str, Callable[[Any], _Parts]] = {
    "wordpiece": _of_wordpiece,
    "sentencepiece": _of_sentencepiece,
    "bpe": _of_bytes,
}
