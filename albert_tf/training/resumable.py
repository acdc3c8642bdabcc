"""The two newest checkpoints with optimizer that a run can go on from: neither a kill nor a power cut takes both."""

import os
import sys
from pathlib import Path

import keras

from albert_tf.checkpoints.formats import load_keras
from tfrecords.base import files
from tfrecords.base.errors import UserError

LAST, BEFORE = "last.keras", "previous.keras"
# What a newest checkpoint that cannot be read is kept as, out of the way of the next one.
DAMAGED = "damaged.keras"
NAMES = (LAST, BEFORE, DAMAGED)


def exists(folder: Path) -> bool:
    """Whether there is a checkpoint to go on from."""
    return any((folder / name).is_file() for name in (LAST, BEFORE))


def save(model: keras.Model, folder: Path) -> None:
    """Writes `last.keras`; what was so called becomes `previous.keras`."""
    with files.replacing(folder / LAST) as temporary:
        model.save(temporary)
        # Killed before the new one has its name, a run goes on from the one before.
        if (folder / LAST).is_file():
            os.replace(folder / LAST, folder / BEFORE)


def load(folder: Path, is_chief: bool = True) -> keras.Model | None:
    """Loads the newest checkpoint that can be read, compiled; None where there is none.

    A newest one that cannot be read is named on stderr and put aside.

    Args:
        folder: of the run.
        is_chief: whether this process writes; it also removes what a killed one left half-written.

    Raises:
        UserError: there are checkpoints, and none can be read.
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
        if problems and is_chief:
            os.replace(folder / LAST, folder / DAMAGED)
            print(f"{problems[0]}; it is kept as {DAMAGED}, going on from {name}", file=sys.stderr)
        return model
    if problems:
        raise UserError(f"{'; '.join(problems)}; copy one back whole, or start again in another --output_dir")
    return None
