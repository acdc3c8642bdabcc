"""Reads and writes a byte-level BPE's files: a `tokenizer.json`, or `vocab.json` and `merges.txt`."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

from tfrecords.base.errors import UserError
from tfrecords.base.files import parse_json
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.by_library import AddedToken
from tfrecords.tokenizers.folders import other_files
from tfrecords.tokenizers.folders.folder_files import added_token
from tfrecords.tokenizers.folders.row_template import as_template, framing, tokenizer_json, usual_pair

# The names of the special tokens in the order of search: RoBERTa's, BERT's, others.
ROLES = {
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]", "<|padding|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
# Bytes that no UTF-8 text has.
_NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}


@dataclasses.dataclass(frozen=True)
class ByteBPERules:
    """The rules that determine a byte-level BPE's ids and offsets.

    Attributes:
        ids: id of each piece, in GPT-2's characters, and each added token.
        merges: pairs of pieces, in merge order.
        roles: strings of "cls", "sep", "pad", "unk" and "mask".
        add_prefix_space: whether a text without a leading blank gets one.
        trim_offsets: whether offsets leave out white space.
        keep_first_space: whether a text's first offsets still include a blank.
        compose: whether text is composed (NFC) first.
    """

    ids: dict[str, int]
    merges: list[tuple[str, str]]
    added: tuple[AddedToken, ...]
    roles: dict[str, str]
    add_prefix_space: bool = False
    trim_offsets: bool = True
    keep_first_space: bool = False
    compose: bool = False
    separators_between: int = 2
    second_segment_id: int = 0

    @functools.cached_property
    def reserved(self) -> set[str]:
        """The strings of special tokens, which no merge makes."""
        return {token.content for token in self.added if token.special} | set(self.roles.values())

    def as_values(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        for token in values["added"]:
            # No known vocabulary's ids depend on it; see `byte_text.check_cut_tokens`.
            del token["normalized"]
        return values


# The rules that RoBERTa's class in transformers sets, by field: the key that states each, and its default.
ROBERTA: dict[str, tuple[str, Any]] = {
    "add_prefix_space": ("add_prefix_space", False),
    "compose": ("normalizer", False),
    "separators_between": ("post_processor", 2),
    "second_segment_id": ("post_processor", 0),
}


@functools.cache
def byte_characters() -> list[str]:
    """The character that stands for each byte in pieces: its own if visible, else one above U+00FF.

    Source: openai/gpt-2:encoder.py, `bytes_to_unicode`.

    >>> byte_characters()[ord("a")], byte_characters()[ord(" ")]
    ('a', 'Ġ')
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def piece_bytes(piece: str) -> bytes | None:
    """Converts a piece's `byte_characters` to bytes; None if it has other characters."""
    table = _bytes_of_characters()
    return bytes(table[character] for character in piece) if all(map(table.__contains__, piece)) else None


@functools.cache
def _bytes_of_characters() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def parse_rules(values: dict[str, Any], roles: dict[str, str], where: str) -> ByteBPERules:
    """Reads the rules in a parsed tokenizer.json. `roles`: special tokens from other files."""
    parting = other_files.steps_of(values, "pre_tokenizer")
    if not parting or parting[-1]["type"] != "ByteLevel":
        raise UnknownTokenizer(f"'{where}' holds a BPE tokenizer of characters; known is the BPE of bytes (ByteLevel)")
    other_files.check_file(values, where, "BPE")
    return _checked(_parse(values, parting, roles, where), where)


def rules_of_library(values: dict[str, Any], roles: dict[str, str], where: str) -> ByteBPERules:
    """Reads what rows need of a tokenizer.json that the library itself follows; see `other_files.is_of_library`."""
    if not other_files.is_of_library(values):
        raise UserError("a vocabulary of Gemma's or Llama 3's form is not changed here; leave it as it is")
    other_files.check_file(values, where)
    return _parse(values, other_files.steps_of(values, "pre_tokenizer"), roles, where)


def _parse(values: dict[str, Any], parting: list[dict[str, Any]], roles: dict[str, str], where: str) -> ByteBPERules:
    model, steps = values["model"], other_files.steps_of(values, "post_processor")
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    tokens = tuple(added_token(token, token["id"]) for token in values.get("added_tokens") or [])
    ids = dict(model["vocab"]) | {token.content: token.id for token in tokens}
    ends, pair = framing(steps, ids, where)
    found = roles | ({"unk": model["unk_token"]} if model.get("unk_token") else {}) | ends
    roles = {role: _name(role, found, ids, where) for role in ROLES}
    trimming = [step for step in steps if "trim_offsets" in step]
    add_prefix_space = parting[-1].get("add_prefix_space", True)
    if add_prefix_space and len(parting) > 1:
        other_files.refuse(where, f"puts a blank before every word (add_prefix_space after a {parting[0]['type']})")
    if len(parting) == 1 and not parting[-1].get("use_regex", True):
        other_files.refuse(where, "has use_regex=false (pre_tokenizer ByteLevel)")
    return ByteBPERules(
        ids,
        merges,
        tokens,
        roles,
        add_prefix_space,
        any(step["trim_offsets"] for step in trimming),
        any(step.get("add_prefix_space", True) for step in trimming),
        compose=bool(other_files.steps_of(values, "normalizer")),
        **(pair or usual_pair(roles["cls"])),
    )


def _name(role: str, found: dict[str, str], ids: dict[str, int], where: str) -> str:
    names = [name for name in (found.get(role), *ROLES[role]) if name in ids]
    if not names and role == "unk":
        # No text is unknown.
        return _name("pad", found, ids, where)
    if not names:
        raise UserError(
            f"'{where}' has no {role} token such as {' or '.join(ROLES[role])}; name it in a special_tokens_map.json "
            f'beside it: {{"{role}_token": ...}}'
        )
    return names[0]


def _checked(rules: ByteBPERules, where: str) -> ByteBPERules:
    numbers = list(rules.ids.values())
    if any(type(number) is not int or number < 0 for number in numbers) or len(set(numbers)) < len(numbers):
        raise UserError(f"'{where}' gives two pieces the same id, or one that is no id; copy it again")
    absent = [byte for byte, character in enumerate(byte_characters()) if character not in rules.ids]
    if set(absent) - _NEVER:
        raise UserError(f"'{where}' has no piece for the byte {absent[0]:#04x}; it is not a byte-level BPE vocabulary")
    if shared := rules.reserved & set(byte_characters()):
        raise UserError(f"'{where}' has the special token {min(shared)!r}, which is the piece of a byte; rename it")
    for number, (left, right) in enumerate(rules.merges, 1):
        for piece in (left, right, left + right):
            if piece not in rules.ids:
                raise UserError(
                    f"merge {number} of '{where}', {left!r} and {right!r}, needs {piece!r}, which the vocabulary has "
                    "not; vocabulary and merges do not belong together"
                )
    return rules


def rules_of_files(
    vocabulary: bytes, merges: bytes, roles: dict[str, str], added: Iterable[AddedToken], where: str, **settings: bool
) -> ByteBPERules:
    """Reads vocab.json and merges.txt as RoBERTa's tokenizer does.

    Raises UserError if they are damaged or do not belong together.
    """
    ids = parse_json(vocabulary, where)
    lines = [line.rstrip("\r") for line in merges.decode("utf-8-sig").split("\n")]
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs):
        raise UserError(f"'{where}' has a merges.txt with a line that is no pair of pieces; copy both again")
    listed = {token.content: token for token in added}
    ids |= {token.content: token.id for token in listed.values()}
    names = {role: _name(role, roles, ids, where) for role in ROLES}
    special = {
        name: AddedToken(name, ids[name], True, lstrip=role == "mask" and name == "<mask>")
        for role, name in names.items()
    }
    if not pairs and any(len(piece) > 1 for piece in ids.keys() - special.keys() - listed.keys()):
        raise UserError(f"'{where}' has pieces of several bytes, but its merges.txt no merges; copy both again")
    tokens = tuple(sorted((special | listed).values(), key=lambda token: token.id))
    return _checked(ByteBPERules(ids, pairs, tokens, names, **settings, **usual_pair(names["cls"])), where)


def as_tokenizer_json(rules: ByteBPERules) -> bytes:
    """Returns a tokenizer.json of the `tokenizers` library with these rules."""
    level = {"type": "ByteLevel", "add_prefix_space": rules.add_prefix_space, "trim_offsets": True, "use_regex": True}
    cls, sep = ((rules.roles[role], rules.ids[rules.roles[role]]) for role in ("cls", "sep"))
    trimming = {"trim_offsets": rules.trim_offsets, "add_prefix_space": rules.keep_first_space}
    if (rules.separators_between, rules.second_segment_id) == (2, 0):
        post = {"type": "RobertaProcessing", "sep": sep, "cls": cls} | trimming
    else:
        post = as_template(cls, sep, rules.separators_between, rules.second_segment_id)
        if rules.trim_offsets:
            post = {"type": "Sequence", "processors": [{"type": "ByteLevel", "use_regex": True} | trimming, post]}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": rules.roles["unk"],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(sorted(rules.ids.items(), key=lambda item: item[1])),
        "merges": [list(merge) for merge in rules.merges],
    }
    normalizer = {"type": "NFC"} if rules.compose else None
    return tokenizer_json(
        rules.added, normalizer=normalizer, pre_tokenizer=level, post_processor=post, decoder=level, model=model
    )
