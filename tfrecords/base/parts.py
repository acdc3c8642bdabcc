"""A folder of results that are made in parts; after a stop, the same command makes the missing parts.

While a job is unfinished, `.parts` has the job, its finished parts and their reports. A part is done when its report
exists and its files have the sizes in the report. The manifest is written last: a folder with one is complete.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError

# The folder of an unfinished job's parts.
PARTS = ".parts"
_JOB, _PUBLISHING = "job.json", "publishing.json"


class Parts:
    """The parts of one folder's unfinished job."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / PARTS

    def job(self) -> dict[str, Any] | None:
        """Returns the unfinished job, or None; first completes an interrupted `publish`."""
        if (self.path / _PUBLISHING).exists():
            self._publish()
        try:
            return files.read_object(self.path / _JOB) or None
        except UserError:
            return None

    def claim(self, job: dict[str, Any]) -> None:
        """Begins a job, or continues it if the parts are those of an equal one."""
        if self.job() != job:
            self.remove()
            self.path.mkdir()
            files.write_json(self.path / _JOB, job)

    def file(self, name: str) -> Path:
        """Path of a part's file."""
        return self.path / name

    def finish(self, part: str, report: Mapping[str, Any], made: Iterable[Path], durable: bool = True) -> dict:
        """Writes and returns a part's report, with the names and sizes of the files `made`."""
        report = {"files": {path.name: path.stat().st_size for path in made}, **report}
        files.write_json(self.path / f"{part}.json", report, durable)
        return report

    def done(self, part: str) -> dict[str, Any] | None:
        """Returns a finished part's report; None if the part is missing or was cut off."""
        try:
            report = files.read_json(self.path / f"{part}.json")
            sizes = {name: (self.path / name).stat().st_size for name in report["files"]}
        except (UserError, OSError, TypeError, KeyError):
            return None
        return report if sizes == report["files"] else None

    def publish(self, manifest: str, content: str, names: Mapping[str, str]) -> None:
        """Moves files of parts to their `names` in the folder, and writes `content` to the file `manifest` last."""
        files.write_json(self.path / _PUBLISHING, {"manifest": manifest, "content": content, "names": dict(names)})
        self._publish()

    def _publish(self) -> None:
        state = self.path / _PUBLISHING
        try:
            plan = files.read_json(state)
            names = {self.path / part: files.inside(self.folder, name, state) for part, name in plan["names"].items()}
            manifest, content = self.folder / plan["manifest"], plan["content"].encode()
        except (UserError, TypeError, KeyError, AttributeError):
            # Nothing was moved by a damaged plan: the job goes on from its parts.
            state.unlink()
            return
        for part, path in names.items():
            # Those that are missing were moved before a stop.
            if part.exists():
                os.replace(part, path)
        files.sync(self.folder)
        files.write(manifest, content)
        self.remove()

    def remove(self) -> None:
        """Removes all parts."""
        shutil.rmtree(self.path, ignore_errors=True)
