"""Scores answers to SQuAD as the official scripts do.

python -m albert_tf.score_squad --data=dev-v1.1.json --predictions=squad/predictions/dev/predictions.json
python -m albert_tf.score_squad --data=dev-v2.0.json --predictions=predictions.json --null_odds=null_odds.json
"""

import dataclasses
import json
import sys

from albert_tf.tasks.squad.data import read_null_odds, read_predictions, read_squad
from albert_tf.tasks.squad.scorer import evaluate_v1, evaluate_v2
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting


@dataclasses.dataclass(frozen=True)
class ScoreSettings(CheckedSettings):
    """The command's flags."""

    data: str = setting(help="SQuAD JSON file with the questions and their answers, also .gz")
    predictions: str = setting(help="JSON object that maps question ids to answer texts, such as predictions.json")
    null_odds: str = setting(
        "", help="for version 2.0: JSON object that maps question ids to numbers, higher for no answer"
    )


def score(settings: ScoreSettings) -> dict[str, float]:
    """Returns the official script's scores, in its order."""
    examples, predictions = read_squad(settings.data), read_predictions(settings.predictions)
    missing = sum(example.id not in predictions for example in examples)
    # Version 1.1 has an answer to every question.
    if all(example.answers for example in examples):
        if settings.null_odds:
            raise UserError(
                "--null_odds is for version 2.0, whose files have questions without an answer; leave it out"
            )
        _warn(missing, "count as wrong")
        return evaluate_v1(examples, predictions)
    if missing == len(examples):
        raise UserError(f"'{settings.predictions}' answers no question of '{settings.data}'")
    _warn(missing, "are left out; the official script stops with a KeyError")
    odds = read_null_odds(settings.null_odds) if settings.null_odds else None
    return evaluate_v2(examples, predictions, odds)


def _warn(missing: int, what: str) -> None:
    if missing:
        print(f"{missing} questions have no prediction: they {what}", file=sys.stderr)


def main(settings: ScoreSettings) -> None:
    """Prints the scores."""
    print(json.dumps(score(settings), indent=2))


def run() -> None:
    """Runs the command."""
    run_main(main, ScoreSettings)


if __name__ == "__main__":
    run()
