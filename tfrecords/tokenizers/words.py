"""Decides which tokens of a row begin a word, for whole-word masks, and caches the ids of recent words.

White space ends words. In scripts without white space, such as Chinese and Thai, each token is a word, but tokens that
share a character form one word.

The cache is for compiled code: a hash table that is emptied when full. A word's record is [number of characters, number
of ids, characters, ids]. Its entry in `slots` has the upper bits of the word's digest and the record's position; 0 is
empty. `records` begins with the next free position and the number of records.
"""

import functools
import unicodedata

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.tokenizers.unicode_classes import parse_ranges

# Letters, marks and digits of scripts that are written without white space between words (Unicode's Scripts.txt and
# LineBreak.txt), in hexadecimal. Punctuation that Korean shares with Chinese and Japanese is not among them.
_UNSPACED = """
e01-e3a e40-e5b e81-eff f00-fff 1000-109f 1780-17ff 1950-19ff 1a20-1aaf 1b00-1b7f 2e80-2fdf 3005-3007 3021-302d
3031-3035 3038-303c 3041-309f 30a1-30fa 30fc-30ff 3105-312f 31a0-31bf 31f0-31ff 3400-4dbf 4e00-a4cf a980-a9df a9e0-a9fe
aa60-aadf f900-faff ff66-ff9f 11700-1174f 16fe0-16fe4 16ff0-16ff6 17000-18d8f 1aff0-1b2ff 20000-3ffff
"""
_JOINERS = "\u200c\u200d"


@functools.cache
def unspaced_table() -> np.ndarray:
    """Whether each code point is of a script without white space between words: bool [0x110000]."""
    table = np.zeros(0x110000, bool)
    for first, last in parse_ranges(_UNSPACED):
        table[first : last + 1] = True
    return table


def is_spaced_letter(character: str) -> bool:
    """Returns whether a character is a letter of a script with white space between words.

    >>> [is_spaced_letter(character) for character in "éя한中ก1,"]
    [True, True, True, False, False, False, False]
    """
    is_part = unicodedata.category(character)[0] in "LM" or character in _JOINERS
    return is_part and not unspaced_table()[ord(character)]


def byte_table(pieces: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Returns pieces as `word_begins` reads them: UTF-8 bytes, concatenated uint8, and splits, int64 [pieces + 1]."""
    # A copy, since numba treats a read-only array as another type.
    return np.frombuffer(b"".join(pieces), np.uint8).copy(), np.cumsum([0, *map(len, pieces)])


@compiled
def word_begins(ids, starts, data, splits, unspaced):
    """Returns which tokens of one row begin a word, bool [tokens].

    These are tokens whose piece is True in `starts`, bool [vocab], and tokens whose first byte begins a character of a
    script without white space, or follows such a character.
    """
    begins = np.empty(len(ids), np.bool_)
    code, missing, token, after_unspaced = np.int64(0), 0, -1, False
    for place in range(len(ids)):
        begins[place] = starts[ids[place]]
        first = splits[ids[place]]
        for at in range(first, splits[ids[place] + 1]):
            byte = np.int64(data[at])
            if byte & 0xC0 != 0x80:
                token = place if at == first else -1
                if after_unspaced and token >= 0:
                    begins[token] = True
                after_unspaced = False
                missing = (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
                code = byte & (0x3F >> missing) if missing else byte
            elif missing > 0:
                code, missing = code << 6 | byte & 0x3F, missing - 1
            if missing == 0:
                after_unspaced = code < len(unspaced) and unspaced[code]
                if after_unspaced and token >= 0:
                    begins[token] = True
    return begins


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
