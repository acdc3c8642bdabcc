"""The output folder of a job."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError

PARTS, JOB, MANIFEST, BAD_ROWS = ".parts", "job.json", "manifest.json", "bad_rows.jsonl"
Record = dict[str, Any]


def table_names(paths: Sequence[Path], suffix: str) -> dict[str, str]:
    """Returns the table's name for each file: its relative path with another suffix."""
    # A link counts by its own name, not by its target's.
    places = [path.parent.resolve() / path.name for path in paths]
    root = Path(os.path.commonpath([place.parent for place in places]))
    names = {str(path): str(place.relative_to(root).with_suffix(suffix)) for path, place in zip(paths, places)}
    if len(set(names.values())) < len(names):
        twice = next(name for name in names.values() if list(names.values()).count(name) > 1)
        raise UserError(f"two files of --input would both become '{twice}'; score them into two folders")
    for path, name in names.items():
        if Path(name).parts[0] in (PARTS, BAD_ROWS, MANIFEST):
            raise UserError(f"the answers to '{path}' would be '{name}', the command's own file; rename that input")
    return names


def part_path(parts: Path, number: int, suffix: str) -> Path:
    """Path of a piece's answers, bad rows or report."""
    return parts / f"{number:06d}{suffix}"


def read_records(folder: Path) -> tuple[Record | None, Record | None]:
    """Returns a finished job's record, and an unfinished one's; None if missing."""
    return _record(folder / MANIFEST), _record(folder / PARTS / JOB)


def _record(path: Path) -> Record | None:
    if not path.exists():
        return None
    found = files.read_json(path)
    if not isinstance(found, dict) or not all(isinstance(found.get(key), dict) for key in ("job", "tables", "sample")):
        raise UserError(f"'{path}' is not of this version of serving.score; give another --output_dir")
    # The tables are removed when the job is done anew.
    for name in found["tables"].values():
        files.inside(path.parent, name, path)
    return found


def check_targets(folder: Path, names: dict[str, str], paths: Sequence[Path], records: Sequence[Record]) -> None:
    """Raises UserError if a file to write or remove is an input, or exists but is in no record."""
    beside = [BAD_ROWS, MANIFEST]
    own = {name for record in records for name in [*record["tables"].values(), *beside]}
    inputs = {path.resolve(): path for path in paths}
    for name in dict.fromkeys([*names.values(), *beside, *sorted(own)]):
        target = folder / name
        if path := inputs.get(target.resolve()):
            raise UserError(f"answers would take the place of the input '{path}'; give another --output_dir")
        if name not in own and os.path.lexists(target):
            raise UserError(
                f"'{target}' is there and was not written by this command; give another --output_dir, or move it away"
            )


def remove_answers(folder: Path, record: Record) -> None:
    """Removes tables first and records last, so that an interrupted removal can go on."""
    for name in [*record["tables"].values(), BAD_ROWS]:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    (folder / MANIFEST).unlink(missing_ok=True)
