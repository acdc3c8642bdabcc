"""Reads and writes a tokenizer.json's post_processor, which adds special tokens."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tfrecords.tokenizers.base import AddedToken, UnknownTokenizer


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
            numbers = {name: number for name, number in (step["cls"], step["sep"])}
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
    single, pair = (
        [(kind, part["id"], part["type_id"]) for one in step[name] for kind, part in one.items()]
        for name in ("single", "pair")
    )
    special = [name for kind, name, _ in single if kind == "SpecialToken"]
    for last in (False, True)[: 1 + may_end_with_cls] if len(special) == 2 else ():
        cls, sep = reversed(special) if last else special
        end = [("SpecialToken", cls, 2 if last else 0)]
        for between, segment in itertools.product((1, 2), (0, 1)):
            rows = _row("A", 0, sep, 1), _row("A", 0, sep, between) + _row("B", segment, sep, 1)
            if [single, pair] == [[*row, *end] if last else [*end, *row] for row in rows]:
                return {"cls": cls, "sep": sep}, pair_rules(between, segment)
    raise UnknownTokenizer(
        f"'{where}' does not frame a text as `[CLS] text [SEP]` do, or a pair as `[CLS] A [SEP] B [SEP]` does "
        "(post_processor)"
    )


def _row(text: str, segment: int, sep: str, count: int) -> list[tuple[str, str, int]]:
    return [("Sequence", text, segment), *[("SpecialToken", sep, segment)] * count]


def as_template(
    cls: tuple[str, int], sep: tuple[str, int], separators_between: int, second_segment_id: int
) -> dict[str, Any]:
    """Returns a post_processor for the rows that `framing` describes."""

    def token(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [token(cls[0], 0), text("A", 0), token(sep[0], 0)]
    last = [text("B", second_segment_id), token(sep[0], second_segment_id)]
    pair = single + [token(sep[0], 0)] * (separators_between - 1) + last
    special = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in (cls, sep)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def tokenizer_json(tokens: Iterable[AddedToken], **parts: dict[str, Any] | None) -> bytes:
    """Returns a tokenizer.json with these tokens and other parts."""
    values = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _as_values(tokens)} | parts
    return json.dumps(values, ensure_ascii=False).encode()


def _as_values(tokens: Iterable[AddedToken]) -> list[dict[str, Any]]:
    return [
        {"id": token.id, "content": token.content, "single_word": False, "lstrip": token.lstrip}
        | {"rstrip": token.rstrip, "normalized": not token.is_cut_first, "special": token.special}
        for token in sorted(tokens, key=lambda token: token.id)
    ]
