"""Answers as the files that SQuAD's tools read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.data import SquadExample, read_json
from tfrecords.base import files
from tfrecords.base.errors import UserError


def write_answers(
    folder: Path, examples: Sequence[SquadExample], answers: Sequence[Answers], threshold: float | None
) -> list[Path]:
    """predictions.json, nbest_predictions.json and, where some questions may have no answer, null_odds.json.

    threshold: above these null odds the prediction is ""; None where every question has an answer.
    """
    ids = [example.id for example in examples]
    contents = {
        "predictions": {one: found.text(threshold) for one, found in zip(ids, answers)},
        "nbest_predictions": {one: _nbest(found) for one, found in zip(ids, answers)},
    }
    if threshold is not None:
        contents["null_odds"] = {one: found.null_odds for one, found in zip(ids, answers)}
    folder = files.make_output_dir(folder)
    for name, content in contents.items():
        files.write_json(folder / f"{name}.json", content)
    return [folder / f"{name}.json" for name in contents]


def read_predictions(path: str) -> dict[str, str]:
    """A file of question ids with their texts. Raises UserError for anything else."""
    return _read(path, str, "texts")


def read_null_odds(path: str) -> dict[str, float]:
    """A file of question ids with their null odds. Raises UserError for anything else."""
    return {key: float(value) for key, value in _read(path, (int, float), "numbers").items()}


def _read(path: str, kind: type | tuple[type, ...], what: str) -> dict:
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"'{path}' is not a JSON object of question ids with {what}")
    for key, value in found.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"'{path}': question '{key}' has {value!r}; expected an object of ids with {what}")
    return found


def _nbest(found: Answers) -> list[dict[str, str | float]]:
    if not found.candidates:
        return []
    scores = np.array([candidate.score for candidate in found.candidates])
    odds = np.exp(scores - scores.max())
    return [
        {"text": candidate.text, "probability": float(share), "score": candidate.score}
        for candidate, share in zip(found.candidates, odds / odds.sum())
    ]
