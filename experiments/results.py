"""The results of a table as rows of a CSV file, and what they say: means, spreads, differences that count."""

import csv
import dataclasses
import math
import statistics
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from scipy import stats

from experiments.tables import Comparison
from tfrecords.base import files
from tfrecords.base.errors import UserError

# How sure all comparisons of a table are together.
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Holds what came of a run; a line of the CSV file.

    Attributes:
        row: of the table, by its name.
        seed: of the run.
        updates: of the weights.
        parameters: of the model with its heads.
        masked_lm_loss: held out, nats a predicted token.
        masked_lm_accuracy: held out, share of the predicted tokens.
        pair_accuracy: held out, share of the sentence pairs; None without a pair task.
        training_seconds: of the run's updates, beside whatever else the machine did.
        seconds_per_step: the row's, from steps of all rows in turn.
        training_flops: of the encoder, see `costs.training_flops`.
        inference_flops_per_token: of the encoder.
        inference_ms: the row's, of one answer, from answers of all rows in turn.
        machine: that it ran on.
    """

    row: str
    seed: int
    updates: int
    parameters: int
    masked_lm_loss: float
    masked_lm_accuracy: float
    pair_accuracy: float | None
    training_seconds: float
    seconds_per_step: float | None
    training_flops: float
    inference_flops_per_token: float
    inference_ms: float | None
    machine: str


def write_results(results: Sequence[Result], path: Path) -> None:
    """Writes a CSV file, a line for each run; figures have six digits, what was not measured is empty."""
    columns = [field.name for field in dataclasses.fields(Result)]
    with files.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for result in results:
            writer.writerow([_text(getattr(result, column)) for column in columns])


def read_results(path: Path) -> list[Result]:
    """Reads what `write_results` wrote.

    Raises:
        UserError: the file is missing, or is none of these.
    """
    types = {name: _plain(hint) for name, hint in typing.get_type_hints(Result).items()}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [
                Result(**{name: None if text == "" else types[name](text) for name, text in line.items()})
                for line in csv.DictReader(file)
            ]
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is no file of results: {error}") from error


def _text(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(hint: object) -> type:
    return next(kind for kind in (*typing.get_args(hint), hint) if kind is not type(None))


@dataclasses.dataclass(frozen=True)
class Spread:
    """Holds the mean over seeds and their sample standard deviation, NaN for a single seed.

    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, count=3)
    """

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Makes it of the values of the seeds."""
        deviation = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(statistics.fmean(values), deviation, len(values))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Says what a comparison came to.

    Attributes:
        comparison: of which two rows.
        difference: of the mean losses; below zero the row is better.
        needed: what the difference must exceed to count; NaN where neither row has two seeds.
    """

    comparison: Comparison
    difference: float
    needed: float

    @property
    def word(self) -> str:
        """Gives "better", "worse" or "not decidable"."""
        if not abs(self.difference) > self.needed:
            return "not decidable"
        return "better" if self.difference < 0 else "worse"

    @property
    def published(self) -> str:
        """Says whether the published direction is confirmed; "" where none is published."""
        if not self.comparison.published:
            return ""
        if self.word == "not decidable":
            return "not decidable at this scale"
        return "confirmed" if self.word == self.comparison.published else "not confirmed"


def verdicts(results: Sequence[Result], comparisons: Sequence[Comparison]) -> list[Verdict]:
    """Judges the comparisons whose rows both have results.

    A difference of two means counts where it is outside Student's t interval of the two rows, of `CONFIDENCE` for all
    comparisons together (each at 1 - (1 - CONFIDENCE) / comparisons: Bonferroni). The spread is that of the two rows
    alone: a row whose runs now and then fail must not hide what the others say.
    """
    losses: dict[str, list[float]] = {}
    for result in results:
        losses.setdefault(result.row, []).append(result.masked_lm_loss)
    judged = [one for one in comparisons if one.row in losses and one.against in losses]
    confidence = 1 - (1 - CONFIDENCE) / max(len(judged), 1)
    return [_judged(one, losses[one.row], losses[one.against], confidence) for one in judged]


def _judged(comparison: Comparison, ours: Sequence[float], theirs: Sequence[float], confidence: float) -> Verdict:
    freedom = len(ours) + len(theirs) - 2
    needed = math.nan
    if freedom:
        squares = sum((len(values) - 1) * statistics.variance(values) for values in (ours, theirs) if len(values) > 1)
        error = math.sqrt(squares / freedom * (1 / len(ours) + 1 / len(theirs)))
        needed = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return Verdict(comparison, statistics.fmean(ours) - statistics.fmean(theirs), needed)
