"""Writes files of answers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from albert_tf.tasks.squad.data import SquadExample
from tfrecords.answers.spans import Answers
from tfrecords.base import files


def write_answers(
    folder: Path, examples: Sequence[SquadExample], answers: Sequence[Answers], threshold: float | None
) -> list[Path]:
    """Writes predictions.json, nbest_predictions.json and, with a `threshold`, null_odds.json."""
    ids = [example.id for example in examples]
    contents = {
        "predictions": {one: answer.text(threshold) for one, answer in zip(ids, answers)},
        "nbest_predictions": {one: _nbest(answer) for one, answer in zip(ids, answers)},
    }
    if threshold is not None:
        contents["null_odds"] = {one: answer.null_odds for one, answer in zip(ids, answers)}
    folder = files.make_output_dir(folder)
    for name, content in contents.items():
        files.write_json(folder / f"{name}.json", content)
    return [folder / f"{name}.json" for name in contents]


def _nbest(answer: Answers) -> list[dict[str, str | float]]:
    if not answer.candidates:
        return []
    scores = np.array([candidate.score for candidate in answer.candidates])
    odds = np.exp(scores - scores.max())
    return [
        {"text": candidate.text, "probability": float(share), "score": candidate.score}
        for candidate, share in zip(answer.candidates, odds / odds.sum())
    ]
