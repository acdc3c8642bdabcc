"""The rows that a run held out, with the model's answers: `held_out.csv` in its folder."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from albert_tf.tasks.tables.data_file import FileOptions, text_key
from albert_tf.tasks.tables.reading import read_table, write_table
from tfrecords.base.errors import UserError, first_line

FILE = "held_out.csv"
# The `text_key` of each row that the run was trained on.
TRAINED = "train_texts.npy"
_TEXTS = ("text", "second_text")
_ANSWER = ("prediction", "probability")


def write_held_out(
    folder: Path, texts: Sequence[Sequence[str]], shown: Sequence[Sequence[str]], probabilities: Sequence[float | None]
) -> None:
    """Writes rows of texts, each with prediction and, perhaps, label and the model's probability of being right."""
    count = max(map(len, texts))
    names = [*_TEXTS, *(f"negative_{number}" for number in range(1, count))][:count]
    rows = [
        [*of_row, *label, prediction, "" if probability is None else f"{probability:.6g}"]
        for of_row, (prediction, *label), probability in zip(texts, shown, probabilities)
        # Reading takes no text that is empty.
        if all(text.strip() and "\0" not in text for text in of_row)
    ]
    header = [*names, *["label"] * (len(shown[0]) > 1), *_ANSWER]
    write_table(folder / FILE, header, rows)


def held_out_options(options: FileOptions, columns: Sequence[str]) -> FileOptions:
    """Returns the options with this table's columns, if a file with `columns` is one."""
    if tuple(columns[-2:]) != _ANSWER or columns[0] != _TEXTS[0]:
        return options
    roles = dict(zip(("text_column", "second_text_column", "label_column"), (*_TEXTS, "label")))
    given = {role: getattr(options, role) or (name if name in columns else "") for role, name in roles.items()}
    return FileOptions(**{**vars(options), **given})


def trained_on(run: str | os.PathLike, texts: Iterable[Sequence[str]]) -> int:
    """Returns how many rows of texts the run in this folder, or with this model file, was trained on."""
    place = Path(run)
    path = (place if place.is_dir() else place.parent) / TRAINED
    if not path.is_file():
        return 0
    try:
        known = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"'{path}' is damaged: {first_line(error)}; remove it") from error
    return int(np.isin(np.array([text_key(one) for one in texts], np.uint64), known).sum())


def held_out_file(model: str | os.PathLike) -> Path | None:
    """Returns the table of the run that `model`, its folder or a file in it, is of; None without one."""
    place = Path(model)
    path = (place if place.is_dir() else place.parent) / FILE
    return path if str(model) and path.is_file() else None


def held_out_texts(path: Path, most: int) -> list[list[str]]:
    """Returns the columns of texts of at most `most` rows, from all over the table."""
    table = read_table(path)
    rows = list(table.rows)
    names = [name for name in _TEXTS if name in table.columns]
    some = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))
    return [[rows[number].values[name] for number in some] for name in names]
