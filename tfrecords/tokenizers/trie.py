"""A vocabulary as a trie over characters whose edges lie in a hash table, for compiled tokenizers."""

from collections.abc import Iterable

import numpy as np

from tfrecords.base.compiled import compiled

# An edge is one number, node | character | child: a step of the walk reads one place of memory.
_CHARACTER_BITS, _CHILD_BITS = 21, 21
_LARGEST_CHILD = (1 << _CHILD_BITS) - 1


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
