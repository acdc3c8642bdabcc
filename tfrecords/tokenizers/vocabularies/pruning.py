import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import WORD_BOUNDARY
from tfrecords.tokenizers.bytes.byte_bpe_file import as_tokenizer_json

# Special pieces that may be dropped: unused placeholders.
_UNUSED = re.compile(r"\[unused_?\d+\]|<unused\d+>|madeupword\d+")
_WORDPIECE_SUFFIX = "##"
_TYPES = model_pb2.ModelProto.SentencePiece


def prune_tokenizer(tokenizer: Tokenizer, counts: Sequence[int], size: int = 0) -> tuple[Tokenizer, np.ndarray]:
    """Returns a tokenizer with only the pieces that occur, and their former ids, ascending: int64 [pieces].

    Special pieces and single characters of used pieces (in byte-level BPE, all bytes and the parts of kept pieces)
    stay. Text whose pieces all stay is tokenized as before.

    counts: how often each piece occurs. size: maximum number of pieces, the most frequent first; 0 for all. Raises
    UserError for SentencePiece models that are not unigram ones, or if the size is too small.

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] film fi ##lm f ##i ##l ##m dull".split()
    >>> tokenizer = WordPieceTokenizer("\\n".join(pieces).encode())
    >>> small, kept = prune_tokenizer(tokenizer, [0] * 5 + [3] + [0] * 7)
    >>> kept.tolist(), small.encode("film fil")
    ([0, 1, 2, 3, 4, 5, 8, 9, 10, 11], [5, 6, 7, 8])
    """
    counts = np.asarray(counts, np.int64)
    needed = _needed_of_bytes(tokenizer) if tokenizer.kind == "bpe" else _needed(tokenizer, counts)
    if tokenizer.kind == "sentencepiece":
        # Symbols that are found wherever they stand, and bytes, which stand in for characters without a piece.
        proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
        needed |= np.array([piece.type in (_TYPES.USER_DEFINED, _TYPES.BYTE) for piece in proto.pieces])
    if size and size < needed.sum():
        raise UserError(
            f"a vocabulary of {size} pieces has no room for the {needed.sum()} special pieces and single characters"
            " that the text needs; give more"
        )
    others = np.flatnonzero(~needed & (counts > 0))
    # Ties by id, to be the same on every machine.
    others = others[np.argsort(-counts[others], kind="stable")]
    merged_of = getattr(tokenizer, "merged_of", {})
    taken = set(np.flatnonzero(needed).tolist())
    for number in others.tolist():
        more = _with_parts(number, merged_of) - taken
        if size and len(taken) + len(more) > size:
            break
        taken |= more
    kept = np.array(sorted(taken), np.int64)
    return _PRUNERS[tokenizer.kind](tokenizer, kept), kept


def pieces_within(small: Tokenizer, whole: Tokenizer) -> np.ndarray | None:
    """Returns the ids in `whole` of a pruned tokenizer's pieces, int64 [pieces]; None if not pruned from it.

    >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
    >>> whole = WordPieceTokenizer(b"[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb\\n##b")
    >>> small, kept = prune_tokenizer(whole, [0, 0, 0, 0, 0, 0, 4, 0])
    >>> pieces_within(small, whole).tolist() == kept.tolist(), pieces_within(whole, small)
    (True, None)
    """
    if small.kind != whole.kind:
        return None
    # Both are in the same order: one pass is enough.
    walk = ((number, whole.id_to_piece(number)) for number in range(whole.vocab_size))
    pieces = map(small.id_to_piece, range(small.vocab_size))
    found = [next((number for number, other in walk if other == piece), -1) for piece in pieces]
    if -1 in found:
        return None
    kept = np.array(found, np.int64)
    return kept if _PRUNERS[whole.kind](whole, kept).sha256 == small.sha256 else None


def _with_parts(number: int, merged_of: Mapping[int, tuple[int, int]]) -> set[int]:
    return {number}.union(*(_with_parts(part, merged_of) for part in merged_of.get(number, ())))


def _needed_of_bytes(tokenizer: Any) -> np.ndarray:
    needed = tokenizer.merge_ranks == -1
    names = (*tokenizer.rules.roles.values(), *(token.content for token in tokenizer.rules.added))
    needed[[tokenizer.rules.ids[name] for name in names if not _UNUSED.fullmatch(name)]] = True
    return needed


def _needed(tokenizer: Tokenizer, counts: np.ndarray) -> np.ndarray:
    marks = (_WORDPIECE_SUFFIX, WORD_BOUNDARY)
    bare = [piece.removeprefix(marks[0]).removeprefix(marks[1]) or piece for piece in tokenizer.pieces]
    special = set(tokenizer.special_ids.tolist())
    used = (piece for number, piece in enumerate(bare) if counts[number] and number not in special)
    # Digits and commas: ALBERT's rule cuts pieces at them.
    characters = {WORD_BOUNDARY, ",", *"0123456789"}.union(*used)
    return np.array(
        [
            not _UNUSED.fullmatch(piece) if number in special else len(short) == 1 and short in characters
            for number, (piece, short) in enumerate(zip(tokenizer.pieces, bare))
        ]
    )


def _prune_sentencepiece(tokenizer: Tokenizer, kept: np.ndarray) -> Tokenizer:
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    if proto.trainer_spec.model_type != model_pb2.TrainerSpec.UNIGRAM:
        raise UserError(
            "of SentencePiece models only unigram ones are cut: the pieces of others are made of each other"
        )
    pieces = [proto.pieces[number] for number in kept]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    places = {int(number): place for place, number in enumerate(kept)}
    for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
        before = getattr(proto.trainer_spec, name)
        setattr(proto.trainer_spec, name, places.get(before, -1))
    proto.trainer_spec.vocab_size = len(pieces)
    return tokenizer.with_vocabulary(proto.SerializeToString(deterministic=True))


def _prune_bytes(tokenizer: Any, kept: np.ndarray) -> Tokenizer:
    places = {int(number): place for place, number in enumerate(kept)}
    rules = tokenizer.rules
    ids = {piece: places[number] for piece, number in rules.ids.items() if number in places}
    rules = dataclasses.replace(
        rules,
        ids=ids,
        merges=[(left, right) for left, right in rules.merges if {left, right, left + right} <= ids.keys()],
        added=tuple(dataclasses.replace(token, id=ids[token.content]) for token in rules.added if token.content in ids),
    )
    return tokenizer.with_vocabulary(as_tokenizer_json(rules))


_PRUNERS: dict[str, Callable[[Any, np.ndarray], Tokenizer]] = {
    "wordpiece": lambda tokenizer, kept: tokenizer.with_pieces([tokenizer.pieces[number] for number in kept]),
    "sentencepiece": _prune_sentencepiece,
    "bpe": _prune_bytes,
}
