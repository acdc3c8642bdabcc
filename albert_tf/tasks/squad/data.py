"""SQuAD's JSON files, gzipped or not."""

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf.tasks.tables.values import LARGEST
from tfrecords.base import files
from tfrecords.base.columns import whole_characters
from tfrecords.base.errors import UserError
from tfrecords.base.text_files import HEAD_BYTES, encoding_of, foreign_kind

# The largest files of questions have some hundred megabytes.
_MOST_BYTES = 2**30


class GoldAnswer(NamedTuple):
    """A right answer; `start`: its first character's index in the context, or None."""

    text: str
    start: int | None


class SquadExample(NamedTuple):
    """A question; `answers` is empty if it has no answer or the file is not labelled."""

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...]


def read_squad(path: str | os.PathLike, labelled: bool = True) -> list[SquadExample]:
    """Reads the questions of a file; `labelled`: whether each must have a list of answers."""
    path = Path(path)
    content = read_json(path)
    examples: dict[str, SquadExample] = {}
    for a, article in enumerate(_list(path, content, "data", "")):
        for p, paragraph in enumerate(_list(path, article, "paragraphs", f"data[{a}]")):
            place = f"data[{a}].paragraphs[{p}]"
            context = _text(path, paragraph, "context", place)
            for q, entry in enumerate(_list(path, paragraph, "qas", place)):
                example = _question(path, entry, context, f"{place}.qas[{q}]", labelled)
                if example.id in examples:
                    raise UserError(f"'{path}': {place}.qas[{q}] repeats question id '{example.id}'")
                examples[example.id] = example
    if not examples:
        raise UserError(f"'{path}' holds no questions")
    return list(examples.values())


def without(examples: list[SquadExample], ids: Collection[str]) -> list[SquadExample]:
    """Returns the examples whose ids are not in `ids`."""
    return [example for example in examples if example.id not in ids]


def check_places(examples: Iterable[SquadExample], path: str | os.PathLike = "") -> None:
    """Raises UserError if an example's first answer is not at its answer_start."""
    wrong = [what for example in examples if (what := _misplaced(example))]
    if wrong:
        counted = f"{len(wrong)} answers are misplaced, " + "the first five: " * (len(wrong) > 5)
        it, question = ("it", "question") if len(wrong) == 1 else ("them", "questions")
        raise UserError(
            (f"'{path}': " if path else "")
            + (counted if len(wrong) > 1 else "")
            + "; ".join(wrong[:5])
            + f"; fix {it}, or name the {question} in --exclude_ids"
        )


def _misplaced(example: SquadExample) -> str:
    if not example.answers:
        return ""
    text, start = example.answers[0]
    if start is None:
        return f"question '{example.id}' has no answer_start, which training needs"
    if start >= 0 and example.context.startswith(text, start):
        return ""
    there = example.context[max(start, 0) : max(start, 0) + len(text)]
    return f"question '{example.id}': answer_start {start} points at {there[:60]!r}, not at {text[:60]!r}"


def read_ids(path: str | os.PathLike) -> set[str]:
    """Reads a JSON list of question ids."""
    ids = read_json(Path(path))
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise UserError(f"'{path}' is not a JSON list of question ids")
    return set(ids)


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file, gzipped or not."""
    path = Path(path)
    try:
        text = data = files.read_limited(path, _MOST_BYTES)
        if data.startswith(b"\x1f\x8b"):
            text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UserError(f"'{path}' unpacks to more than {_MOST_BYTES:,} bytes; split it")
        return json.loads(text.decode("utf-8-sig"))
    except UserError:
        raise
    except UnicodeDecodeError as error:
        kind = foreign_kind(text[:HEAD_BYTES]) or encoding_of(text, most=0) or str(error)
        raise UserError(f"'{path}' is not JSON in UTF-8: it is {kind}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is not JSON in UTF-8: {error}") from error


def read_predictions(path: str) -> dict[str, str]:
    """Reads a file's answer texts by question id."""
    return _read_answers(path, lambda value: isinstance(value, str), "texts")


def read_null_odds(path: str) -> dict[str, float]:
    """Reads a file's odds of "no answer" by question id."""
    return {key: float(value) for key, value in _read_answers(path, _is_number, "numbers").items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _read_answers(path: str, fits: Callable[[Any], bool], what: str) -> dict:
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"'{path}' is not a JSON object of question ids with {what}")
    for key, value in content.items():
        if not fits(value):
            raise UserError(f"'{path}': question '{key}' has {value!r}; expected an object of ids with {what}")
    return content


def _question(path: Path, entry: Any, context: str, place: str, labelled: bool) -> SquadExample:
    question_id = _text(path, entry, "id", place)
    place = f"{place} (question '{question_id}')"
    answers = ()
    if labelled or "answers" in entry:
        listed = _list(path, entry, "answers", place)
        answers = tuple(_answer(path, answer, f"{place}.answers[{n}]") for n, answer in enumerate(listed))
    if answers and entry.get("is_impossible"):
        raise UserError(f"'{path}': {place} is_impossible and has answers; fix one of them")
    return SquadExample(question_id, _text(path, entry, "question", place), context, answers)


def _answer(path: Path, answer: Any, place: str) -> GoldAnswer:
    text = _text(path, answer, "text", place)
    start = answer.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise UserError(f"'{path}': {place}.answer_start {start!r} is not a whole number of characters")
    return GoldAnswer(text, start)


def _list(path: Path, value: Any, key: str, place: str) -> list:
    content = value.get(key) if isinstance(value, dict) else None
    if not isinstance(content, list):
        raise UserError(f"'{path}': {place or 'the file'} has no list '{key}'; is it a SQuAD file?")
    return content


def _text(path: Path, value: Any, key: str, place: str) -> str:
    content = value.get(key) if isinstance(value, dict) else None
    if not isinstance(content, str):
        raise UserError(f"'{path}': {place} has no text '{key}'; is it a SQuAD file?")
    return whole_characters(content)
