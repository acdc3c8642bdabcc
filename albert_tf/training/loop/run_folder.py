"""The settings, history and checkpoints of a run."""

import contextlib
import csv
import dataclasses
import math
import os
import secrets
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras

from albert_tf.checkpoints.formats import load_keras
from albert_tf.loading.model_files import MODEL_FILE
from albert_tf.training.loop.devices import Devices
from tfrecords.base import files
from tfrecords.base.errors import UserError, first_line
from tfrecords.base.settings import flag_name, settings_of

RUN_FILE, SETTINGS_FILE, HISTORY_FILE = "run.json", "settings.json", "history.csv"
LAST, BEFORE = "last.keras", "previous.keras"
# The new name of an unreadable checkpoint, so that the next one does not overwrite it.
DAMAGED = "damaged.keras"
# The files that only training reads; all others are of the trained model.
_OF_TRAINING = (RUN_FILE, SETTINGS_FILE, HISTORY_FILE, LAST, BEFORE, DAMAGED)


def copy_model(source: Path, target: Path) -> None:
    """Copies a run's trained model with its files."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in _OF_TRAINING:
            with files.replacing(target / path.name) as temporary:
                shutil.copyfile(path, temporary)


def check_claim(folder: Path, settings: Any, free: Collection[str], facts: dict[str, Any]) -> None:
    """Raises UserError if the folder's run began with other `facts`, or settings that differ outside `free`."""
    if not has_run(folder):
        return
    decisive = {key: value for key, value in dataclasses.asdict(settings).items() if key not in free} | facts
    if different := _differences(files.read_object(folder / RUN_FILE), decisive):
        pairs = ", ".join(f"{key}={before!r} (now {now!r})" for key, before, now in different)
        raise UserError(f"give another --output_dir, or the flags of before: '{folder}' holds a run with {pairs}")


def _differences(began: dict[str, Any], decisive: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    found = list[tuple[str, Any, Any]]()
    for key, now in decisive.items():
        before, now = began.get(key), list(now) if isinstance(now, tuple) else now
        if before != now and isinstance(before, dict) and isinstance(now, dict):
            found += _differences(before, dict.fromkeys(before) | now, f"{prefix}{key}.")
        elif before != now:
            found.append((prefix + key, before, now))
    return found


def claim(folder: Path, settings: Any, free: Collection[str], facts: dict[str, Any]) -> None:
    """Calls `check_claim`, then writes run.json (settings and facts) and settings.json (for --settings)."""
    check_claim(folder, settings, free, facts)
    given = {flag_name(field): getattr(settings, field.name) for field in settings_of(type(settings))}
    files.write_json(folder / SETTINGS_FILE, {flag: value for flag, value in given.items() if value is not None})
    files.write_json(folder / RUN_FILE, dataclasses.asdict(settings) | facts)


@contextlib.contextmanager
def trial_folder(output_dir: Path, devices: Devices) -> Iterator[Path]:
    """Makes a temporary folder in `output_dir` that all processes see."""
    number = devices.sums([secrets.randbelow(2**32) if devices.is_chief else 0])[0]
    name = f".dryrun-{int(number)}"
    with files.trial_folder(output_dir, name) if devices.is_chief else contextlib.nullcontext():
        devices.sums([0])  # Other processes wait until the chief has checked and made the folder.
        yield output_dir / name


class History:
    """The rows of `history.csv` up to `first_step`, where a run resumes."""

    def __init__(self, folder: Path, first_step: float = math.inf):
        self.path = folder / HISTORY_FILE
        self.rows: list[dict] = []
        if self.path.is_file():
            with open(self.path, newline="", encoding="utf-8") as file:
                self.rows = [row for row in _rows(file, self.path) if int(row["step"]) <= first_step]

    def append(self, step: int, seconds: float, figures: dict[str, float]) -> None:
        row = {"step": step, "seconds": round(seconds, 3)}
        self.rows.append(row | {key: f"{float(value):.6g}" for key, value in figures.items()})
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        with files.replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)


def _rows(file: Iterable[str], path: Path) -> Iterator[dict[str, str]]:
    try:
        for row in csv.DictReader(file, strict=True):
            if None in row or None in row.values() or not row["step"].isdecimal():
                raise ValueError(f"{row} is no row of figures")
            yield row
    except (csv.Error, KeyError, ValueError) as error:
        raise UserError(f"'{path}' is damaged: {first_line(error)}; remove it, and the history begins anew") from error


def has_run(folder: Path) -> bool:
    """Returns whether the folder holds a run with a checkpoint or model."""
    return (folder / RUN_FILE).is_file() and (has_checkpoint(folder) or (folder / MODEL_FILE).is_file())


def has_checkpoint(folder: Path) -> bool:
    """Returns whether a run can resume from the folder."""
    return any((folder / name).is_file() for name in (LAST, BEFORE))


def save_checkpoint(model: keras.Model, folder: Path) -> None:
    """Writes model and optimizer to `last.keras`; the old file becomes `previous.keras`. A kill leaves one of them."""
    with files.replacing(folder / LAST) as temporary:
        model.save(temporary)
        # A run killed before the new one has its name resumes from the previous one.
        if (folder / LAST).is_file():
            os.replace(folder / LAST, folder / BEFORE)


def load_checkpoint(folder: Path, is_chief: bool = True) -> keras.Model | None:
    """Loads the newest readable checkpoint, compiled, or returns None.

    An unreadable one is reported and renamed.

    Raises:
        UserError: none of the checkpoints can be read.
    """
    if is_chief:
        files.remove_unfinished(folder)
    problems = []
    for name in (LAST, BEFORE):
        if not (folder / name).is_file():
            continue
        try:
            model = load_keras(folder / name, compile=True)
        except UserError as error:
            problems.append(str(error))
            continue
        if not model.optimizer.updates:
            # Keras only warns and loads no variable of the optimizer: the run would restart with trained weights.
            problems.append(f"'{folder / name}' has an optimizer of other variables than its model's")
            continue
        if problems and is_chief:
            os.replace(folder / LAST, folder / DAMAGED)
            print(f"{problems[0]}; it is kept as {DAMAGED}, going on from {name}", file=sys.stderr)
        return model
    if problems:
        raise UserError(f"{'; '.join(problems)}; copy one back whole, or start again in another --output_dir")
    return None
