"""Reads and writes a tokenizer.json's post_processor, which adds special tokens."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.by_library import AddedToken


def pair_rules(separators: int, segment: int) -> dict[str, int]:
    """Returns `separators_between` and `second_segment_id` as a dict."""
    return {"separators_between": separators, "second_segment_id": segment}


def usual_pair(cls: str | None) -> dict[str, int]:
    """Returns the default `pair_rules`: RoBERTa's if the "cls" token is `<s>`, else BERT's."""
    return pair_rules(2, 0) if cls == "<s>" else pair_rules(1, 1)


def framing(
    steps: Sequence[dict[str, Any]], ids: dict[str, int], where: str, may_end_with_cls: bool = False
) -> tuple[dict[str, str], dict[str, int]]:
    """Reads which special tokens surround texts: `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, or these with [CLS] last.

    Returns the strings of "cls" and "sep", and the `pair_rules`; both empty if no step adds tokens. Raises
    UnknownTokenizer for other rows, or ids that differ from `ids`.
    """
    ends, pair = dict[str, str](), dict[str, int]()
    for step in steps:
        if step["type"] in ("RobertaProcessing", "BertProcessing"):
            ends = {"cls": step["cls"][0], "sep": step["sep"][0]}
            numbers = dict([step["cls"], step["sep"]])
            pair = pair_rules(2, 0) if step["type"] == "RobertaProcessing" else pair_rules(1, 1)
        elif step["type"] == "TemplateProcessing":
            ends, pair = _template(step, where, may_end_with_cls)
            numbers = {name: token["ids"] for name, token in step["special_tokens"].items() if name in ends.values()}
        else:
            continue
        for name, number in numbers.items():
            if number not in (ids.get(name), [ids.get(name)]):
                raise UnknownTokenizer(f"'{where}' frames rows with {name!r} as {number}, which is {ids.get(name)}")
    return ends, pair


def _template(step: dict[str, Any], where: str, may_end_with_cls: bool) -> tuple[dict[str, str], dict[str, int]]:
    special = [part["SpecialToken"]["id"] for part in step["single"] if "SpecialToken" in part]
    for last in (False, True)[: 1 + may_end_with_cls] if len(special) == 2 else ():
        cls, sep = reversed(special) if last else special
        for between, segment in itertools.product((1, 2), (0, 1)):
            if (step["single"], step["pair"]) == _rows(cls, sep, between, segment, last):
                return {"cls": cls, "sep": sep}, pair_rules(between, segment)
    raise UnknownTokenizer(
        f"'{where}' does not frame a text as `[CLS] text [SEP]` do, or a pair as `[CLS] A [SEP] B [SEP]` does "
        "(post_processor)"
    )


def _rows(cls: str, sep: str, separators: int, segment: int, cls_last: bool = False) -> tuple[list, list]:
    def part(kind: str, name: str, segment: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": segment}}

    end = [part("SpecialToken", cls, 2 if cls_last else 0)]
    first = [part("Sequence", "A", 0), part("SpecialToken", sep, 0)]
    second = [part("Sequence", "B", segment), part("SpecialToken", sep, segment)]
    rows = first, first + first[1:] * (separators - 1) + second
    return tuple([*row, *end] if cls_last else [*end, *row] for row in rows)


def as_template(
    cls: tuple[str, int], sep: tuple[str, int], separators_between: int, second_segment_id: int
) -> dict[str, Any]:
    """Returns a post_processor for the rows that `framing` describes."""
    single, pair = _rows(cls[0], sep[0], separators_between, second_segment_id)
    special = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in (cls, sep)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def tokenizer_json(tokens: Iterable[AddedToken], **parts: dict[str, Any] | None) -> bytes:
    """Returns a tokenizer.json with these tokens and other parts."""
    added = [
        {"id": token.id, "content": token.content, "single_word": False, "lstrip": token.lstrip}
        | {"rstrip": token.rstrip, "normalized": not token.is_cut_first, "special": token.special}
        for token in sorted(tokens, key=lambda token: token.id)
    ]
    values = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added} | parts
    return json.dumps(values, ensure_ascii=False).encode()
