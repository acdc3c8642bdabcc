"""The output folder of a job."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import PARTS, Parts

MANIFEST, BAD_ROWS = "manifest.json", "bad_rows.jsonl"
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


def read_records(folder: Path) -> tuple[Record | None, Record | None]:
    """Returns a finished job's record, and an unfinished one's; None if missing."""
    # First, since a job that was stopped while its tables were moved is finished then.
    begun, manifest = Parts(folder).job(), folder / MANIFEST
    finished = files.read_json(manifest) if manifest.exists() else None
    return _checked(finished, manifest), _checked(begun, folder / PARTS)


def _checked(record: Any, path: Path) -> Record | None:
    if record is None:
        return None
    if not isinstance(record, dict) or not all(
        isinstance(record.get(key), dict) for key in ("job", "tables", "sample")
    ):
        raise UserError(f"'{path}' is not of this version of serving.score; give another --output_dir")
    # The tables are removed when the job is done anew.
    for name in record["tables"].values():
        files.inside(path.parent, name, path)
    return record


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
    Parts(folder).remove()
    (folder / MANIFEST).unlink(missing_ok=True)
