"""SentencePiece's unigram model on whole batches, compiled, with a cache of recent words.

Words are segmented one by one with SentencePiece's arithmetic (unigram_model.cc, EncodeOptimized). SentencePiece itself
sums scores from a text's start, so rounding may choose differently between equal scores (8|88 and 88|8).
"""

import functools
import threading
from collections.abc import Sequence

import numpy as np
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tfrecords.base.machine.compiled import compiled
from tfrecords.tokenizers.by_library import WORD_BOUNDARY
from tfrecords.tokenizers.characters import build_trie, child
from tfrecords.tokenizers.normalization import decompile, library_flags, normalizer_of
from tfrecords.tokenizers.words import (
    FIRST_DIGEST,
    digest_with,
    empty_cache,
    find_word,
    keep_word,
    larger,
    record_at,
)

# unigram_model.cc: what an unknown character costs below the rarest piece.
_UNKNOWN_PENALTY = 10.0
_PIECE = model_pb2.ModelProto.SentencePiece
_SPACE = ord(" ")
_BOUNDARY = ord(WORD_BOUNDARY)


class UnigramSegmenter:
    """Converts texts to ids; thread-safe.

    expansions: the ids that replace each id, concatenated int32, and row_splits, int64 [vocab_size + 1].
    """

    def __init__(self, proto: model_pb2.ModelProto, expansions: tuple[np.ndarray, np.ndarray]):
        self._normalizer = normalizer_of(proto.normalizer_spec.precompiled_charsmap)
        segmentable = [
            (piece.piece, number)
            for number, piece in enumerate(proto.pieces)
            if piece.type in (_PIECE.NORMAL, _PIECE.USER_DEFINED)
        ]
        scores = np.array([piece.score for piece in proto.pieces])
        normal = [piece.score for piece in proto.pieces if piece.type == _PIECE.NORMAL]
        unknown = next(number for number, piece in enumerate(proto.pieces) if piece.type == _PIECE.UNKNOWN)
        # 0, above every piece's log-probability, has user-defined symbols chosen wherever they stand.
        scores[[number for number, piece in enumerate(proto.pieces) if piece.type == _PIECE.USER_DEFINED]] = 0
        scores[unknown] = min(normal) - _UNKNOWN_PENALTY
        is_single = library_flags(proto.normalizer_spec) is None
        if is_single:
            scores = scores.astype(np.float32).astype(np.float64)
        edges, ids, _ = build_trie(segmentable)
        self._model = (edges, ids, scores, is_single, unknown, *expansions)
        self._lock = threading.Lock()
        self._slots, self._records = empty_cache()

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        normal = self._normalizer.normalize(list(texts)) if len(texts) else []
        codes = np.frombuffer("".join(normal).encode("utf-32-le"), np.uint32)
        text_splits = np.cumsum([0, *map(len, normal)], dtype=np.int64)
        with self._lock:
            return _encode(codes, text_splits, *self._model, self._slots, self._records)


def can_segment(proto: model_pb2.ModelProto) -> bool:
    """Returns whether segmenting each word alone always gives a text's best segmentation."""
    spec, pieces = proto.normalizer_spec, proto.pieces
    own = {piece.piece for piece in pieces if piece.type == _PIECE.USER_DEFINED}
    normalizer = normalizer_of(spec.precompiled_charsmap)
    return (
        proto.trainer_spec.model_type == model_pb2.TrainerSpec.UNIGRAM
        and not (proto.trainer_spec.treat_whitespace_as_suffix or proto.trainer_spec.byte_fallback)
        and (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces)
        and any(piece.piece == WORD_BOUNDARY and piece.type == _PIECE.NORMAL for piece in pieces)
        and not any(WORD_BOUNDARY in piece.piece[1:] for piece in pieces)
        # SentencePiece keeps user-defined symbols out of its normalisation.
        and all(len(symbol) == 1 and normalizer.normalize(symbol) == symbol for symbol in own)
        and not own & _replaced_characters(spec.precompiled_charsmap)
    )


# 0.7 s for each of the published ones.
@functools.lru_cache(maxsize=8)
def _replaced_characters(charsmap: bytes) -> frozenset[str]:
    return frozenset(character for source, _ in decompile(charsmap) for character in source)


@compiled
def _encode(
    codes, text_splits, edges, piece_ids, scores, is_single, unknown, expansions, expansion_splits, slots, records
):  # fmt: skip
    longest = 0
    for row in range(len(text_splits) - 1):
        longest = max(longest, text_splits[row + 1] - text_splits[row])
    best, origins = np.empty(longest + 2, np.float64), np.empty(longest + 2, np.int64)
    pieces, path = np.empty(longest + 2, np.int32), np.empty(longest + 2, np.int32)
    out = np.empty(len(codes) + 2 * len(text_splits), np.int32)
    row_splits = np.zeros(len(text_splits), np.int64)
    size = 0
    for row in range(len(text_splits) - 1):
        at, end = text_splits[row], text_splits[row + 1]
        while at < end:
            begin, digest = at, FIRST_DIGEST
            while at < end and codes[at] != _SPACE:
                digest = digest_with(digest, codes[at])
                at += 1
            length = at - begin
            if length == 0:
                at += 1
                continue
            slot = find_word(codes, begin, length, digest, slots, records)
            if slots[slot]:
                first, count = record_at(slots[slot], records)
                if size + count > len(out):
                    out = larger(out, size + count)
                for offset in range(count):
                    out[size + offset] = records[first + offset]
                size += count
                continue
            model = edges, piece_ids, scores, is_single, unknown
            first = _segment(codes, begin, length, *model, best, origins, pieces, path)
            start = size
            for piece in path[first : length + 1]:
                for place in range(expansion_splits[piece], expansion_splits[piece + 1]):
                    if size == len(out):
                        out = larger(out, size)
                    out[size] = expansions[place]
                    size += 1
            keep_word(codes, begin, length, digest, out[start:size], slot, slots, records)
        row_splits[row + 1] = size
    return out[:size].copy(), row_splits


@compiled
def _segment(codes, begin, length, edges, piece_ids, scores, is_single, unknown, best, origins, pieces, path):
    length += 1
    origins[: length + 1] = -1
    best[0] = 0
    for start in range(length):
        till_here = best[start]
        node, has_single = np.int64(0), False
        for at in range(start, length):
            node = child(node, codes[begin + at - 1] if at else _BOUNDARY, edges)
            if node < 0:
                break
            piece = piece_ids[node]
            if piece >= 0:
                has_single = has_single or at == start
                score = scores[piece] + till_here
                if is_single:
                    score = np.float64(np.float32(score))
                if origins[at + 1] < 0 or score > best[at + 1]:
                    best[at + 1], origins[at + 1], pieces[at + 1] = score, start, piece
        if not has_single:
            score = scores[unknown] + till_here
            if is_single:
                score = np.float64(np.float32(score))
            if origins[start + 1] < 0 or score > best[start + 1]:
                best[start + 1], origins[start + 1], pieces[start + 1] = score, start, unknown
    first, end = length, length
    while end > 0:
        # Unknown characters side by side are one token.
        if pieces[end] != unknown or first == length or path[first] != unknown:
            first -= 1
            path[first] = pieces[end]
        end = origins[end]
    return first
