"""A cache of recent words' ids for compiled code: a hash table that is emptied when full.

A word's record is [number of characters, number of ids, characters, ids]. Its entry in `slots` has the upper bits of
the word's digest and the record's position; 0 is empty. `records` begins with the next free position and the number of
records.
"""

import numpy as np

from tfrecords.base.machine.compiled import compiled

# FNV-1a.
FIRST_DIGEST = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
# The longest stored word in characters, slots, and 32-bit numbers for the records: 10 MB.
_LONGEST_KEPT = 32
_SLOTS, _RECORDS = 1 << 18, 1 << 21


def empty_cache() -> tuple[np.ndarray, np.ndarray]:
    """Returns empty `slots` and `records`; threads that share them must lock them."""
    return np.zeros(_SLOTS, np.uint64), np.zeros(_RECORDS, np.int32)


@compiled
def digest_with(digest, code):
    """Extends a word's digest by one character."""
    return (digest ^ np.uint64(code)) * _PRIME


@compiled
def find_word(codes, begin, length, digest, slots, records):
    """Returns the index in `slots` of a word, or of the empty slot for it."""
    slot = np.int64((digest ^ (digest >> np.uint64(32))) & np.uint64(_SLOTS - 1))
    while slots[slot]:
        if (slots[slot] ^ digest) < np.uint64(_RECORDS):
            record = np.int64(slots[slot] & np.uint64(_RECORDS - 1))
            same = 0
            if records[record] == length:
                while same < length and records[record + 2 + same] == np.int32(codes[begin + same]):
                    same += 1
                if same == length:
                    break
        slot = (slot + 1) & (_SLOTS - 1)
    return slot


@compiled
def record_at(slot, records):
    """Returns where the ids of a slot's word begin in `records`, and their number."""
    record = np.int64(slot & np.uint64(_RECORDS - 1))
    return record + 2 + records[record], records[record + 1]


@compiled
def keep_word(codes, begin, length, digest, ids, slot, slots, records):
    """Stores the ids of a word in the slot from `find_word`, unless the word is long."""
    if length > _LONGEST_KEPT:
        return
    if records[0] == 0 or records[0] + 2 + length + len(ids) > _RECORDS or 2 * records[1] > _SLOTS:
        slots[:] = 0
        records[0], records[1] = 2, 0
        slot = find_word(codes, begin, length, digest, slots, records)
    record = records[0]
    slots[slot] = (digest & ~np.uint64(_RECORDS - 1)) | np.uint64(record)
    records[record], records[record + 1] = length, len(ids)
    for offset in range(length):
        records[record + 2 + offset] = np.int32(codes[begin + offset])
    for offset in range(len(ids)):
        records[record + 2 + length + offset] = ids[offset]
    records[0], records[1] = record + 2 + length + len(ids), records[1] + 1


@compiled
def larger(array, size):
    """Copies an array to a capacity above `size`."""
    copy = np.empty(2 * size + 64, array.dtype)
    copy[: len(array)] = array
    return copy
