"""The results of a table as rows of a CSV file."""

import csv
import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albert_tf.tasks.tables import write_table
from tfrecords.base.errors import UserError


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
        training_flops: of the encoder, see `albert_tf.analysis.run_cost`.
        inference_flops_per_token: of the encoder.
        inference_ms: the row's, of one answer, from answers of all rows in turn.
        machine: that it ran on.
        timed_on: the machine of `seconds_per_step` and `inference_ms`; None where it was not noted.
        measured: what else the run was asked (`experiments.measures`), by name; in the file a column each.
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
    timed_on: str | None = None
    measured: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def named(self) -> dict[str, Any]:
        """Gives all figures by name, those measured among them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if name != "measured"} | self.measured


def write_results(results: Sequence[Result], path: Path) -> None:
    """Writes a CSV file, a line for each run; figures have six digits, what was not measured is empty."""
    lines = [result.named for result in results]
    columns = list(dict.fromkeys(name for line in lines for name in line if name != "timed_on" or line[name]))
    write_table(path, columns, ([_text(line.get(column)) for column in columns] for line in lines))


def read_results(path: Path) -> list[Result]:
    """Reads what `write_results` wrote.

    Raises:
        UserError: the file is missing, or is none of these.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [_read(line) for line in csv.DictReader(file)]
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is no file of results: {error}") from error


def _read(line: dict[str, str]) -> Result:
    types = {name: _plain(hint) for name, hint in typing.get_type_hints(Result).items() if name != "measured"}
    values = {name: None if text == "" else types[name](text) for name, text in line.items() if name in types}
    measured = {name: float(text) for name, text in line.items() if name not in types and text != ""}
    return Result(**values, measured=measured)


def _text(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(hint: object) -> type:
    return next(kind for kind in (*typing.get_args(hint), hint) if kind is not type(None))
