"""Characters on their way to pieces: what each becomes before BERT's WordPiece looks at it, and tries over them.

google-research/bert tokenization.py: control characters dropped, Chinese characters and punctuation words of their own,
lower case and no accents. All that happens before the pieces is a map over characters: one table serves the compiled
tokenizer and its twin in the graph. (Python's own lower() looks at neighbours in one case, the capital sigma that ends
a word: here it is always a middle one.)
"""

import functools
import unicodedata
from collections.abc import Iterable

import numpy as np

from tfrecords.base.compiled import compiled

# Longer words are [UNK].
MAX_WORD_CHARACTERS = 200
# An edge is one number, node | character | child: a step of the walk reads one place of memory.
_CHARACTER_BITS, _CHILD_BITS = 21, 21
_LARGEST_CHILD = (1 << _CHILD_BITS) - 1
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
PAGE = 256
# In an expansion, the character that is expanded; no code point is as large.
ITSELF = 0x110000


@functools.cache
def character_table(lower_case: bool, keep_accents: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each character becomes, in two levels: row = rows[pages[code // 256] * 256 + code % 256].

    Returns (pages int32 [0x1100], rows int32, expansions int32 [count, width]): line `row` of the expansions is the
    text for the character, code points, zeros behind. ITSELF there stands for the character, so that all Chinese ones
    share a line, and with it their pages.
    """
    rows = np.zeros(0x110000, np.int32)
    expansions = {(ITSELF,): 0}
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Co"):
            continue
        text = _expand(code, character, lower_case, keep_accents)
        target = tuple(ITSELF if part == character != " " else ord(part) for part in text)
        rows[code] = expansions.setdefault(target, len(expansions))
    pages, page_of = np.unique(rows.reshape(-1, PAGE), axis=0, return_inverse=True)
    table = np.zeros((len(expansions), max(map(len, expansions))), np.int32)
    for target, row in expansions.items():
        table[row, : len(target)] = target
    return page_of.ravel().astype(np.int32), pages.ravel(), table


def normalized(text: str, lower_case: bool, keep_accents: bool = False) -> str:
    """Gives the words of a text as WordPiece looks for their pieces, with one blank between them.

    >>> normalized("Café (1,5)", lower_case=True)
    'cafe ( 1 , 5 )'
    """
    return " ".join("".join(_expand(ord(one), one, lower_case, keep_accents) for one in text).split())


def _expand(code: int, character: str, lower_case: bool, keep_accents: bool) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs" or category in ("Zl", "Zp"):
        return " "
    if code in (0, 0xFFFD) or category in ("Cc", "Cf", "Cs"):
        return ""
    normal = character.lower() if lower_case else character
    if lower_case and not keep_accents:
        parts = unicodedata.normalize("NFD", normal)
        normal = "".join(part for part in parts if unicodedata.category(part) != "Mn")
    if any(first <= code <= last for first, last in _CHINESE):
        return f" {normal} "
    return "".join(f" {part} " if _is_punctuation(part) else part for part in normal)


def _is_punctuation(character: str) -> bool:
    symbol = character.isascii() and character.isprintable() and not character.isalnum() and character != " "
    return symbol or unicodedata.category(character).startswith("P")


def build_trie(pieces: Iterable[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The trie of (piece, id); of equal pieces the last counts. An id of -1 makes a path where no piece ends.

    Returns:
        edges int64 [power of two], -1 where empty; ids int32 [nodes], -1 where no piece ends; the node of each piece.
        Node 0 is the root.
    """
    children: dict[tuple[int, str], int] = {}
    nodes, ids_of = [], {}
    for piece, token_id in pieces:
        node = 0
        for character in piece:
            node = children.setdefault((node, character), len(children) + 1)
        nodes.append(node)
        ids_of[node] = token_id
    if len(children) > _LARGEST_CHILD:
        raise ValueError(f"{len(children)} nodes are more than a trie can number, {_LARGEST_CHILD}")
    edges = np.full(1 << (5 * len(children) // 4).bit_length(), -1, np.int64)
    for (parent, character), node in children.items():
        key = parent << _CHARACTER_BITS | ord(character)
        slot = _slot(key, len(edges))
        while edges[slot] >= 0:
            slot = (slot + 1) & (len(edges) - 1)
        edges[slot] = key << _CHILD_BITS | node
    ids = np.full(len(children) + 1, -1, np.int32)
    ids[list(ids_of)] = list(ids_of.values())
    return edges, ids, nodes


@compiled
def _slot(key, size):
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(size - 1))


@compiled
def child(node, code, edges):
    """The node that the character `code` leads to from `node`, or -1."""
    key = np.int64(node) << _CHARACTER_BITS | np.int64(code)
    slot = _slot(key, len(edges))
    edge = edges[slot]
    while edge >= 0:
        if edge >> _CHILD_BITS == key:
            return edge & _LARGEST_CHILD
        slot = (slot + 1) & (len(edges) - 1)
        edge = edges[slot]
    return np.int64(-1)
