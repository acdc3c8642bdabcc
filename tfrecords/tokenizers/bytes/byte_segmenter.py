"""Byte-level BPE of whole batches, compiled, with a cache of recent words.

As in the `tokenizers` library, the merge of the lowest rank comes first, and the leftmost among equals.
"""

import threading
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.tokenizers.characters import FIRST_TOKEN, child, edge_table
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, OTHER, SPACE, class_table
from tfrecords.tokenizers.words import (
    FIRST_DIGEST,
    digest_with,
    empty_cache,
    find_word,
    keep_word,
    larger,
    record_at,
)

_TOKEN = SPACE + 1
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_S, _T, _M, _D, _R, _E, _V, _L = (ord(letter) for letter in "stmdrevl")


@compiled
def _kind(code, classes):
    return classes[code] if code < FIRST_TOKEN else _TOKEN


@compiled
def word_end(codes, begin, end, classes):
    """Returns where the word that begins at `begin` ends, in a text that ends at `end`."""
    if codes[begin] == _APOSTROPHE:
        after = _contraction_end(codes, begin, end)
        if after > begin:
            return after
    first, kind = begin, _kind(codes[begin], classes)
    if kind == _TOKEN:
        return begin + 1
    if codes[begin] == _BLANK and begin + 1 < end:
        following = _kind(codes[begin + 1], classes)
        if following in (LETTER, NUMBER, OTHER):
            first, kind = begin + 1, following
    stop = first + 1
    while stop < end and _kind(codes[stop], classes) == kind:
        stop += 1
    # The last of several spaces belongs to the next word.
    if kind == SPACE and stop - begin > 1 and stop < end and codes[stop] < FIRST_TOKEN:
        stop -= 1
    return stop


@compiled
def _contraction_end(codes, begin, end):
    if begin + 1 < end:
        first = codes[begin + 1]
        if first in (_S, _T, _M, _D):
            return begin + 2
        if begin + 2 < end:
            second = codes[begin + 2]
            if (first in (_R, _V) and second == _E) or (first == _L and second == _L):
                return begin + 3
    return begin


class ByteSegmenter:
    """Converts characters to byte-level BPE ids; thread-safe.

    byte_ids: id of each byte, int32 [256], or -1. merges: int32 [merges, 3], by rank: ids of two parts and of the
    merged piece.
    """

    def __init__(self, byte_ids: np.ndarray, merges: np.ndarray):
        pairs = {(left, right): rank for rank, (left, right, _) in enumerate(merges.tolist())}
        self._model = (byte_ids, edge_table(pairs), np.ascontiguousarray(merges[:, 2]))
        self._lock = threading.Lock()
        self._cache = empty_cache()

    def encode(self, codes: np.ndarray, text_splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids int32 [tokens], and row_splits int64 [texts + 1].

        codes: uint32, concatenated code points; FIRST_TOKEN + id for an added token.
        """
        with self._lock:
            return _encode(codes, text_splits, class_table(), *self._model, *self._cache)

    def last_merges(self, pieces: Sequence[bytes]) -> np.ndarray:
        """Rank of the last merge that makes each piece: int64 [pieces]; -1 for a byte, -2 if it is not one token."""
        splits = np.cumsum([0, *map(len, pieces)])
        return _last_merges(np.frombuffer(b"".join(pieces), np.uint8), splits, *self._model)


@compiled
def _encode(codes, text_splits, classes, byte_ids, pairs, new_ids, slots, records):
    out = np.empty(len(codes) + 64, np.int32)
    row_splits = np.zeros(len(text_splits), np.int64)
    size = 0
    for row in range(len(text_splits) - 1):
        at, end = text_splits[row], text_splits[row + 1]
        while at < end:
            begin, digest = at, FIRST_DIGEST
            at = word_end(codes, begin, end, classes)
            for place in range(begin, at):
                digest = digest_with(digest, codes[place])
            slot = find_word(codes, begin, at - begin, digest, slots, records)
            if slots[slot]:
                first, count = record_at(slots[slot], records)
                if size + count > len(out):
                    out = larger(out, size + count)
                for offset in range(count):
                    out[size + offset] = records[first + offset]
                size += count
                continue
            if codes[begin] >= FIRST_TOKEN:
                ids = np.array([codes[begin] - FIRST_TOKEN], np.int32)
            else:
                ids, _ = _merge(_bytes_of(codes[begin:at], byte_ids), pairs, new_ids)
            if size + len(ids) > len(out):
                out = larger(out, size + len(ids))
            out[size : size + len(ids)] = ids
            size += len(ids)
            keep_word(codes, begin, at - begin, digest, ids, slot, slots, records)
        row_splits[row + 1] = size
    return out[:size].copy(), row_splits


@compiled
def _bytes_of(codes, byte_ids):
    symbols = np.empty(4 * len(codes), np.int32)
    count = 0
    for code in codes:
        code = np.int64(code)
        if code < 0x80:
            symbols[count] = byte_ids[code]
            count += 1
            continue
        following = 1 if code < 0x800 else 2 if code < 0x10000 else 3
        lead = 0xC0 if following == 1 else 0xE0 if following == 2 else 0xF0
        symbols[count] = byte_ids[lead | code >> (6 * following)]
        for place in range(1, following + 1):
            symbols[count + place] = byte_ids[0x80 | (code >> (6 * (following - place)) & 0x3F)]
        count += following + 1
    return symbols[:count]


@compiled
def _merge(symbols, pairs, new_ids):
    size, last = len(symbols), -1
    following, before = np.arange(1, size + 1), np.arange(-1, size - 1)
    # A pair is one number: its rank and its left part's position. Outdated pairs are skipped.
    heap = [np.int64(0) for _ in range(0)]
    for place in range(size - 1):
        rank = child(symbols[place], symbols[place + 1], pairs)
        if rank >= 0:
            heappush(heap, np.int64(rank) << 32 | place)
    count = size
    while len(heap) > 0:
        top = heappop(heap)
        place, right = top & 0xFFFFFFFF, np.int64(size)
        if symbols[place] >= 0:
            right = following[place]
        if right == size:
            continue
        rank = child(symbols[place], symbols[right], pairs)
        if rank < 0 or new_ids[rank] != new_ids[top >> 32]:
            continue
        last = rank
        symbols[place], symbols[right] = new_ids[rank], -1
        count -= 1
        following[place] = following[right]
        if following[right] < size:
            before[following[right]] = place
            rank = child(symbols[place], symbols[following[place]], pairs)
            if rank >= 0:
                heappush(heap, np.int64(rank) << 32 | place)
        if before[place] >= 0:
            rank = child(symbols[before[place]], symbols[place], pairs)
            if rank >= 0:
                heappush(heap, np.int64(rank) << 32 | before[place])
    ids = np.empty(count, np.int32)
    place = 0
    for number in range(count):
        ids[number] = symbols[place]
        place = following[place]
    return ids, last


@compiled
def _last_merges(data, splits, byte_ids, pairs, new_ids):
    found = np.full(len(splits) - 1, -2, np.int64)
    for piece in range(len(splits) - 1):
        symbols = byte_ids[data[splits[piece] : splits[piece + 1]]]
        if len(symbols) > 0 and symbols.min() >= 0:
            ids, last = _merge(symbols, pairs, new_ids)
            if len(ids) == 1:
                found[piece] = last
    return found
