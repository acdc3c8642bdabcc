"""SQuAD's JSON files, gzipped or not."""

import gzip
import json
import os
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf.tasks.tables import whole_characters
from tfrecords.base.errors import UserError


class Answer(NamedTuple):
    """start: its first character in the context, as the file says; None where it does not."""

    text: str
    start: int | None


class SquadExample(NamedTuple):
    """A question. answers: none where it has no answer, or where the file is not labelled."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]


def read_squad(path: str | os.PathLike, labelled: bool = True) -> list[SquadExample]:
    """The questions of a file in their order; those of one paragraph share one context.

    labelled: whether each question must say its answers, be it none.

    Raises:
        UserError: naming the file and the place of the first thing that is not as SQuAD's files are.
    """
    path = Path(path)
    content = read_json(path)
    found: dict[str, SquadExample] = {}
    for a, article in enumerate(_list(path, content, "data", "")):
        for p, paragraph in enumerate(_list(path, article, "paragraphs", f"data[{a}]")):
            place = f"data[{a}].paragraphs[{p}]"
            context = _text(path, paragraph, "context", place)
            for q, entry in enumerate(_list(path, paragraph, "qas", place)):
                example = _question(path, entry, context, f"{place}.qas[{q}]", labelled)
                if example.id in found:
                    raise UserError(f"'{path}': {place}.qas[{q}] repeats question id '{example.id}'")
                found[example.id] = example
    if not found:
        raise UserError(f"'{path}' holds no questions")
    return list(found.values())


def without(examples: list[SquadExample], ids: Collection[str]) -> list[SquadExample]:
    """The examples but those of the ids, such as questions whose answer_start was guessed."""
    return [example for example in examples if example.id not in ids]


def read_ids(path: str | os.PathLike) -> set[str]:
    """A JSON list of question ids."""
    ids = read_json(Path(path))
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise UserError(f"'{path}' is not a JSON list of question ids")
    return set(ids)


def read_json(path: str | os.PathLike) -> Any:
    """What a file, gzipped or not, holds. Raises UserError when it cannot be read or is not JSON."""
    path = Path(path)
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        return json.loads(text.decode("utf-8-sig"))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is not JSON in UTF-8: {error}") from error


def _question(path: Path, entry: Any, context: str, place: str, labelled: bool) -> SquadExample:
    question_id = _text(path, entry, "id", place)
    place = f"{place} (question '{question_id}')"
    answers = ()
    if labelled or "answers" in entry:
        found = _list(path, entry, "answers", place)
        answers = tuple(_answer(path, answer, f"{place}.answers[{n}]") for n, answer in enumerate(found))
    if answers and entry.get("is_impossible"):
        raise UserError(f"'{path}': {place} is_impossible and has answers; mend one of them")
    return SquadExample(question_id, _text(path, entry, "question", place), context, answers)


def _answer(path: Path, answer: Any, place: str) -> Answer:
    text = _text(path, answer, "text", place)
    start = answer.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise UserError(f"'{path}': {place}.answer_start {start!r} is not a whole number of characters")
    return Answer(text, start)


def _list(path: Path, value: Any, key: str, place: str) -> list:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise UserError(f"'{path}': {place or 'the file'} has no list '{key}'; is it a SQuAD file?")
    return found


def _text(path: Path, value: Any, key: str, place: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise UserError(f"'{path}': {place} has no text '{key}'; is it a SQuAD file?")
    return whole_characters(found)
