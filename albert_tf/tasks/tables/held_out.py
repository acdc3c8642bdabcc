"""The rows that a run held out, with the model's answers: `held_out.csv` in its folder."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.tasks.tables.data_file import FileOptions, text_key
from tfrecords.answers.numbers import softmax
from tfrecords.base import files
from tfrecords.base.tables import read_table, write_table

# A command reads this file before TensorFlow starts.
if TYPE_CHECKING:
    from albert_tf.tasks.task import Answered

FILE = "held_out.csv"
# The `text_key` of each row that the run was trained on.
TRAINED = "trained_on.json"
# What reading refuses: an empty text, NUL, and a carriage return alone.
_UNREADABLE = re.compile(r"\A\s*\Z|\0|\r(?!\n)")
_TEXTS, _ANSWER = ("text", "second_text"), ("prediction", "probability")


def write_held_out(folder: Path, answered: Sequence["Answered"]) -> Path:
    """Writes rows: texts, label, prediction, and the probability of the choice that the model is least sure of."""
    count, has_labels = len(answered[0].texts), answered[0].label is not None
    names = [*_TEXTS, *(f"negative_{number}" for number in range(1, count))][:count]
    rows = (
        [*one.texts, *[one.label] * has_labels, one.prediction, *_probability(one)]
        for one in answered
        if not any(_UNREADABLE.search(text) for text in one.texts)
    )
    return write_table(folder / FILE, [*names, *["label"] * has_labels, *_ANSWER], rows)


def _probability(answered: "Answered") -> list[str]:
    return [f"{softmax(answered.logits).max(axis=1).min():.6g}" if len(answered.right) else ""]


def held_out_options(options: FileOptions, columns: Sequence[str]) -> FileOptions:
    """Returns the options with this table's columns, if a file with `columns` is one."""
    if tuple(columns[-2:]) != _ANSWER or columns[0] != _TEXTS[0]:
        return options
    roles = dict(zip(("text_column", "second_text_column", "label_column"), (*_TEXTS, "label")))
    return replace(
        options, **{role: getattr(options, role) or name * (name in columns) for role, name in roles.items()}
    )


def of_run(model: str | os.PathLike, name: str = FILE) -> Path | None:
    """Returns a file of the run whose folder, or a file in it, is `model`; None if there is none."""
    path = (Path(model) if Path(model).is_dir() else Path(model).parent) / name
    return path if str(model) and path.is_file() else None


def held_out_rows(path: Path, most: int) -> dict[str, list[str]]:
    """Returns the columns of at most `most` rows, from all over the table."""
    table = read_table(path)
    rows = list(table.rows)
    some = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))
    return {name: [rows[number].values[name] for number in some] for name in table.columns}


def trained_on(run: str, texts: Iterable[Sequence[str]]) -> int:
    """Returns how many rows of texts the run in a folder, or with a model file, was trained on."""
    path = of_run(run, TRAINED)
    known = set(files.read_json(path)) if path else ()
    return sum(text_key(one) in known for one in texts)
