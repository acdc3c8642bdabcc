"""Writes a tokenizer as the file from which the light runtime's libraries get the same ids."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from serving.lite.description import TokenizerRules
from serving.lite.texts import LiteTokenizer
from serving.litert.trial_lines import trial_lines
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import Blanks
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.bytes.byte_bpe_file import as_tokenizer_json as bpe_json
from tfrecords.tokenizers.bytes.library_bpe import LibraryBPETokenizer
from tfrecords.tokenizers.characters import ITSELF, PAGE, CharacterRules, character_table
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
from tfrecords.tokenizers.wordpiece import as_tokenizer_json as wordpiece_json

# Attributes that the rules have from the tokenizer.
_SAME = [
    "kind",
    "lowers_first",
    "cls_id",
    "sep_id",
    "mask_id",
    "pad_id",
    "unk_id",
    "separators_between",
    "second_segment_id",
    "odd_to_longer",
    "mask_keeps_blank",
    "word_prefix",
    "vocab_size",
]


def write_tokenizer(folder: Path, tokenizer: Tokenizer, with_offsets: bool = False) -> TokenizerRules:
    """Writes the tokenizer's file into a folder; returns what a description says of it.

    Raises UserError if the light runtime's ids, or with `with_offsets` its tokens' places, differ from the tokenizer's
    in a trial line.
    """
    parts, blanks = {}, Blanks()
    if isinstance(tokenizer, SentencePieceTokenizer):
        file, content = tokenizer.file_name, tokenizer.vocabulary
        parts = {str(number): tuple(ids) for number, ids in tokenizer.digit_comma_splits.items()}
        blanks = tokenizer.blanks or blanks
    else:
        file, content = "tokenizer.json", _tokenizer_json(tokenizer)
    own = {name: getattr(tokenizer, name) for name in _SAME}
    rows = tokenizer.table_rows or tokenizer.vocab_size
    rules = TokenizerRules(file=file, table_rows=rows, parts=parts, **blanks._asdict(), **own)
    _compare(tokenizer, LiteTokenizer(rules, content), with_offsets)
    files.write(folder / file, content)
    return rules


def _tokenizer_json(tokenizer: Tokenizer) -> bytes:
    if isinstance(tokenizer, LibraryBPETokenizer):
        return tokenizer.of_texts
    if isinstance(tokenizer, ByteBPETokenizer):
        rules = tokenizer.rules
        values, reserved = json.loads(bpe_json(rules)), rules.reserved
        values["model"]["merges"] = [list(merge) for merge in rules.merges if "".join(merge) not in reserved]
        # Its only effect is on places of tokens.
        trimming = {"trim_offsets": rules.trim_offsets, "add_prefix_space": rules.keep_first_space}
        values["post_processor"] = {"type": "ByteLevel", "use_regex": True} | trimming
    elif isinstance(tokenizer, WordPieceTokenizer):
        values = json.loads(wordpiece_json(tokenizer)) | {"post_processor": None}
        if not tokenizer.rules.of_library:
            _with_our_classes(values, tokenizer.characters)
    else:
        raise UserError(f"a tokenizer of kind '{tokenizer.kind}' is not written for LiteRT; use --inputs=ids")
    # The names of control tokens in a text are text.
    matched = {token.content for token in tokenizer.cut_tokens}
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] in matched]
    return json.dumps(values, ensure_ascii=False).encode()


def _with_our_classes(values: dict[str, Any], rules: CharacterRules) -> None:
    """Adds steps for the characters that google-research/bert's Unicode classes and the library's treat differently."""
    tables = [character_table(dataclasses.replace(rules, of_library=of), "all") for of in (False, True)]
    ours, theirs = (kinds.reshape(-1, PAGE)[pages].reshape(-1) for pages, kinds, _ in tables)
    pairs, pair_of = np.unique(ours.astype(np.int64) << 32 | theirs, return_inverse=True)
    numbers = dict[str, list[int]]()
    for number, pair in enumerate(pairs.tolist()):
        targets = [table[row][table[row] > 0].tolist() for (*_, table), row in zip(tables, divmod(pair, 2**32))]
        if targets[0] != targets[1]:
            kind = "dropped" if not targets[0] else "kept" if targets[0] == [ITSELF] else "alone"
            numbers.setdefault(kind, []).append(number)
    of_kind = {kind: _character_class(np.flatnonzero(np.isin(pair_of, found))) for kind, found in numbers.items()}
    # What is kept is part of no piece, as a rare letter of Vai is not.
    contents = {"dropped": "", "kept": "\ua5ff"}
    steps = [
        {"type": "Replace", "pattern": {"Regex": of_kind[kind]}, "content": content}
        for kind, content in contents.items()
        if kind in of_kind
    ]
    values["normalizer"] = {"type": "Sequence", "normalizers": [*steps, values["normalizer"]]}
    if "alone" in of_kind:
        split = {"type": "Split", "pattern": {"Regex": of_kind["alone"]}, "behavior": "Isolated", "invert": False}
        values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, values["pre_tokenizer"]]}


def _character_class(codes: np.ndarray) -> str:
    codes = codes[(codes < 0xD800) | (codes > 0xDFFF)]
    starts = np.flatnonzero(np.diff(codes, prepend=-2) > 1)
    runs = zip(codes[starts], codes[np.append(starts[1:], len(codes)) - 1])
    return "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in runs) + "]"


def _compare(tokenizer: Tokenizer, other: LiteTokenizer, with_offsets: bool) -> None:
    lines, encode = trial_lines(tokenizer), "encode_with_offsets" if with_offsets else "encode_batch"
    (ids, splits, *places), (own, own_splits, *own_places) = (getattr(one, encode)(lines) for one in (tokenizer, other))
    for line, rows in zip(lines, zip(itertools.pairwise(splits), itertools.pairwise(own_splits))):
        for what, ours, theirs in zip(("ids", "places of tokens"), (ids, *places), (own, *own_places)):
            expected, found = (all_[slice(*row)].tolist() for all_, row in zip((ours, theirs), rows))
            if expected != found:
                raise UserError(
                    f"the {what} of {line[:60]!r} are {str(found)[:80]} in the light runtime, {str(expected)[:80]} in "
                    f"this {tokenizer.kind} tokenizer; export it with --inputs=ids"
                )
