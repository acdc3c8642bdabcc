"""Normalizes characters as BERT does before WordPiece, and builds tries of vocabulary pieces.

As in google-research/bert tokenization.py, control characters and accents are dropped, and Chinese characters and
punctuation become words. Unlike there, a final sigma is lower-cased like one within a word.
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from tfrecords.base.machine.compiled import compiled
from tfrecords.tokenizers import unicode_classes
from tfrecords.tokenizers.by_library import BERT_CHINESE, is_sign

# Codes from here on are tokens: this number plus the token's id.
FIRST_TOKEN = 0x110000
# A separator that no step changes or produces.
BETWEEN = "\u4dc0"

# The first and last of the runs that `clean_text` of BertNormalizer drops: zero, halves of pairs, private characters.
NOT_TEXT = ((0, 0), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


# Of the runs that `handle_chinese_chars` puts blanks around, those whose characters no other step changes.
CHINESE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F))
CHINESE += ((0x2B920, 0x2CEAF),)


@functools.cache
def library_characters(chinese: bool = True) -> list[str]:
    """Returns all assigned characters, without `NOT_TEXT` and, unless `chinese`, without `CHINESE`."""
    codes = np.concatenate([np.arange(*run) for run in ((1, 0xD800), (0xF900, 0x30000), (0xE0000, 0xE0200))])
    for first, last in () if chinese else CHINESE:
        codes = codes[(codes < first) | (codes > last)]
    return [chr(code) for code in codes.tolist() if code != ord(BETWEEN)]


@functools.cache
def changed_by_bert(clean: bool, chinese: bool, strip_accents: bool, lower_case: bool) -> dict[str, str]:
    """Returns the characters outside of `CHINESE` that BertNormalizer changes, with their results."""
    step = normalizers.BertNormalizer(clean, chinese, strip_accents, lower_case)
    others = library_characters(chinese=False)
    results = step.normalize_str(BETWEEN.join(others)).split(BETWEEN)
    return {one: new for one, new in zip(others, results, strict=True) if one != new}


def normalizing(steps: Sequence[str]) -> Callable[[str], str]:
    """Returns a function that applies normalizers such as "NFKD" in turn."""
    return normalizers.Sequence([getattr(normalizers, step)() for step in steps]).normalize_str


def of_graphemes(rules: dict[str, str]) -> dict[str, str]:
    """Maps character sequences in a SentencePiece model's rules to what the normalizer Precompiled makes of them.

    A grapheme under 6 bytes gets the rule with the shortest source that begins it
    (tokenizers/normalizers/precompiled.rs).
    """
    short = [source for source in rules if len(source) > 1 and len(source.encode()) < 6]
    return {
        source: rules[next(source[:end] for end in range(1, len(source) + 1) if source[:end] in rules)]
        for source in short
    }


@functools.cache
def split_by_bert() -> dict[str, str]:
    """Maps characters at which BertPreTokenizer splits: white space to a blank, others to themselves between blanks."""
    signs = [one for one in library_characters(chinese=False) if not one.isalpha()]
    parts = pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a".join(signs))
    words = {part: f" {part} " for part, _ in parts if len(part) == 1 and part != "a"}
    return words | dict.fromkeys(unicode_classes.characters(unicode_classes.SPACE), " ")


# An edge is one number, node | character | child: a step reads memory once.
_CHARACTER_BITS, _CHILD_BITS = 21, 21
_LARGEST_CHILD = (1 << _CHILD_BITS) - 1
PAGE = 256
# In an expansion, the character that is expanded; no code point is as large.
ITSELF = 0x110000


@dataclasses.dataclass(frozen=True)
class CharacterRules:
    """How characters change before WordPiece segments words.

    clean: whether control characters are dropped. chinese: whether each Chinese character is a word. of_library:
    whether Unicode classes are those of the `tokenizers` library, not google-research/bert's.
    """

    lower_case: bool = True
    strip_accents: bool = True
    clean: bool = True
    chinese: bool = True
    of_library: bool = False

    def normal(self, character: str) -> str:
        """Normalizes a character; does not separate punctuation."""
        code = ord(character)
        if self.of_library:
            if self.chinese and _within(code, CHINESE):
                return f" {character} "
            return "" if self.clean and _within(code, NOT_TEXT) else self._changed.get(character, character)
        category = unicodedata.category(character)
        if character in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
            return " "
        if code in (0, 0xFFFD) or category in ("Cc", "Cf", "Cs"):
            return ""
        normal = character.lower() if self.lower_case else character
        if self.strip_accents:
            parts = unicodedata.normalize("NFD", normal)
            normal = "".join(part for part in parts if unicodedata.category(part) != "Mn")
        return f" {normal} " if _within(code, BERT_CHINESE) else normal

    @functools.cached_property
    def _changed(self) -> dict[str, str]:
        return changed_by_bert(self.clean, self.chinese, self.strip_accents, self.lower_case)

    @functools.cached_property
    def _split(self) -> dict[str, str]:
        return split_by_bert()

    def split(self, character: str) -> str:
        """Puts blanks around a normalized character that is a word by itself."""
        if self.of_library:
            return self._split.get(character, character)
        return f" {character} " if is_sign(character) else character

    def changing(self) -> Iterable[int]:
        """Returns the code points that may change, except ranges that change as a whole."""
        if self.of_library:
            return map(ord, {*self._changed, *self._split})
        return (code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co"))

    def all(self, character: str) -> str:
        return "".join(map(self.split, self.normal(character)))


@functools.cache
def character_table(rules: CharacterRules, step: str = "all") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a two-level table of each character's replacement: row = rows[pages[code // 256] * 256 + code % 256].

    step: "all", "normal" or "split". Returns (pages int32 [0x1100], rows int32, expansions int32 [count, width]):
    expansions[row] is the replacing text as code points, padded with zeros. ITSELF stands for the character.
    """
    rows = np.zeros(0x110000, np.int32)
    expansions = {(ITSELF,): 0}
    change = getattr(rules, step)
    runs = (*NOT_TEXT, *CHINESE) if rules.of_library else ()
    for first, last in (*runs, *((code, code) for code in rules.changing())):
        character = chr(first)
        target = tuple(ITSELF if part == character != " " else ord(part) for part in change(character))
        rows[first : last + 1] = expansions.setdefault(target, len(expansions))
    pages, page_of = np.unique(rows.reshape(-1, PAGE), axis=0, return_inverse=True)
    table = np.zeros((len(expansions), max(map(len, expansions))), np.int32)
    for target, row in expansions.items():
        table[row, : len(target)] = target
    return page_of.ravel().astype(np.int32), pages.ravel(), table


def _within(code: int, runs: Iterable[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in runs)


def build_trie(pieces: Iterable[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Builds a trie of (piece, id); the last of equal pieces counts. An id of -1 adds a path without an end.

    Returns edges int64, -1 where empty; ids int32 [nodes], -1 where no piece ends; and each piece's node. Node 0 is the
    root.
    """
    children: dict[tuple[int, int], int] = {}
    nodes, ids_of = [], {}
    for piece, token_id in pieces:
        node = 0
        for character in map(ord, piece):
            node = children.setdefault((node, character), len(children) + 1)
        nodes.append(node)
        ids_of[node] = token_id
    ids = np.full(len(children) + 1, -1, np.int32)
    ids[list(ids_of)] = list(ids_of.values())
    return edge_table(children), ids, nodes


def edge_table(children: Mapping[tuple[int, int], int]) -> np.ndarray:
    """Returns edges, int64, -1 where empty, by which `child` finds the value of a pair; all numbers are below 2**21."""
    if len(children) > _LARGEST_CHILD:
        raise ValueError(f"{len(children)} nodes are more than a trie can number, {_LARGEST_CHILD}")
    edges = np.full(1 << (5 * len(children) // 4).bit_length(), -1, np.int64)
    for (parent, character), node in children.items():
        key = parent << _CHARACTER_BITS | character
        slot = _slot(key, len(edges))
        while edges[slot] >= 0:
            slot = (slot + 1) & (len(edges) - 1)
        edges[slot] = key << _CHILD_BITS | node
    return edges


@compiled
def _slot(key, size):
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(size - 1))


@compiled
def child(node, code, edges):
    """Returns the trie node after `node` for the character `code`, or -1."""
    key = np.int64(node) << _CHARACTER_BITS | np.int64(code)
    slot = _slot(key, len(edges))
    edge = edges[slot]
    while edge >= 0:
        if edge >> _CHILD_BITS == key:
            return edge & _LARGEST_CHILD
        slot = (slot + 1) & (len(edges) - 1)
        edge = edges[slot]
    return np.int64(-1)
