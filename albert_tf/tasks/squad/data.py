"""SQuAD's JSON files, gzipped or not."""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
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
    examples: dict[str, SquadExample] = {}
    file = _Place(str(path), "", read_json(path))
    for article in file.all("data"):
        for paragraph in article.all("paragraphs"):
            context = paragraph.text("context")
            for entry in paragraph.all("qas"):
                example = _question(entry, context, labelled)
                if example.id in examples:
                    raise entry.wrong(f"repeats question id '{example.id}'")
                examples[example.id] = example
    if not examples:
        raise UserError(f"'{path}' holds no questions")
    return list(examples.values())


class _Place(NamedTuple):
    # A value in a file, with its path there.
    file: str
    name: str
    value: Any

    def wrong(self, what: str) -> UserError:
        return UserError(f"'{self.file}': {self.name or 'the file'} {what}")

    def get(self, key: str, kind: type, called: str) -> Any:
        found = self.value.get(key) if isinstance(self.value, dict) else None
        if not isinstance(found, kind):
            raise self.wrong(f"has no {called} '{key}'; is it a SQuAD file?")
        return found

    def text(self, key: str) -> str:
        return whole_characters(self.get(key, str, "text"))

    def all(self, key: str) -> Iterator["_Place"]:
        name = f"{self.name}.{key}".removeprefix(".")
        return (
            _Place(self.file, f"{name}[{number}]", value) for number, value in enumerate(self.get(key, list, "list"))
        )


def _question(entry: _Place, context: str, labelled: bool) -> SquadExample:
    name = entry.text("id")
    entry = entry._replace(name=f"{entry.name} (question '{name}')")
    answers = tuple(map(_answer, entry.all("answers"))) if labelled or "answers" in entry.value else ()
    if answers and entry.value.get("is_impossible"):
        raise entry.wrong("is_impossible and has answers; fix one of them")
    return SquadExample(name, entry.text("question"), context, answers)


def _answer(answer: _Place) -> GoldAnswer:
    text, start = answer.text("text"), answer.value.get("answer_start")
    if start is not None and type(start) is not int:
        raise answer.wrong(f"has the answer_start {start!r}, which is not a whole number of characters")
    return GoldAnswer(text, start)


def check_places(examples: Iterable[SquadExample], path: str | os.PathLike = "") -> None:
    """Raises UserError if an example's first answer is not at its answer_start."""
    if wrong := [what for example in examples if (what := _misplaced(example))]:
        counted = f"{len(wrong)} answers are misplaced, such as these: " if len(wrong) > 1 else ""
        raise UserError(
            (f"'{path}': " if path else "") + f"{counted}{'; '.join(wrong[:5])}; fix the file, or remove the questions"
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


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file, gzipped or not."""
    path = Path(path)
    try:
        data = files.read_limited(path, _MOST_BYTES)
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    if len(data) > _MOST_BYTES:
        raise UserError(f"'{path}' unpacks to more than {_MOST_BYTES:,} bytes; split it")
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = foreign_kind(data[:HEAD_BYTES]) or encoding_of(data, most=0) or str(error)
        raise UserError(f"'{path}' is not JSON in UTF-8: it is {kind}") from error
    return files.parse_json(data, path)


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
