"""The files of a task's data folder, by split."""

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.base.text_files import JSON_LINES, ending, is_gzipped

SUFFIXES = (".tsv", ".csv", *JSON_LINES)
# Files that accompany data sets without effect on results.
DESCRIPTIONS = re.compile(
    r"\..*|(readme|licen[cs]e|citation|changelog|notice|dataset_infos?)\b.*|.*\.(md|py|ipynb|sh)", re.I
)


def find_table(folder: Path, stem: str, suffixes: Sequence[str] = SUFFIXES) -> Path | None:
    """Returns the only file named `stem` with one of the suffixes, perhaps gzipped, or None."""
    return find_tables(folder, suffixes, stem).get(stem)


def find_tables(folder: Path, suffixes: Sequence[str] = SUFFIXES, stem: str = "") -> dict[str, Path]:
    """Returns the files with one of the suffixes, by their names without suffix."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"{glob.escape(stem)}*")):
        of_name = path.name[: len(path.name) - len(ending(path)) - 3 * is_gzipped(path)]
        if ending(path) in suffixes and path.is_file() and of_name == (stem or of_name):
            found.setdefault(of_name, []).append(path)
    for of_name, paths in found.items():
        # A .json file next to another table may be anything.
        tables = [path for path in paths if ending(path) != ".json"] or paths
        if len(tables) > 1:
            tables.sort(key=lambda path: suffixes.index(ending(path)))
            raise UserError(
                f"'{folder}' holds {' and '.join(path.name for path in tables)}; keep the one that is meant"
            )
        found[of_name] = tables
    return {of_name: path for of_name, (path,) in found.items()}


# Possible names of the files of a user's own data, by split.
OWN_STEMS = {"train": ("train",), "dev": ("dev", "validation", "valid", "eval"), "test": ("test",)}


def own_stems(folder: Path) -> dict[str, str]:
    """Returns which splits a user's folder has, and their file names without suffix."""
    found = {}
    for split, names in OWN_STEMS.items():
        stems = [stem for stem in names if find_table(folder, stem)]
        if len(stems) > 1:
            raise UserError(f"'{folder}' holds files named {' and '.join(stems)}; keep the one that is meant")
        if stems:
            found[split] = stems[0]
    return found


def train_file(folder: Path) -> Path:
    """Returns the training file in a user's folder."""
    if path := find_table(folder, "train"):
        return path
    other = ", ".join(sorted(path.name for path in folder.glob("train*") if path.is_file()))
    raise UserError(
        f"'{folder}' holds no train file ending in {', '.join(SUFFIXES)}, or in one of them and .gz"
        + f"; it holds {other}" * bool(other)
    )
