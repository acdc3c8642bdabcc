"""The output folder of a build: complete, being built, or refused because it holds another build."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

from tfrecords import sections
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import Parts
from tfrecords.manifest import MANIFEST, as_text, listed_files, missing_file, read_folder
from tfrecords.tokenizers.base import DESCRIPTION_FILE

INPUTS, _BAD_LINES = "inputs.tsv", "bad_lines.txt"
# Manifest entries that are not part of the description.
_RESULTS = ("inputs", "bad_lines", "splits")


class BuildFolder:
    """The output folder of one build; `description`: manifest entries known when the build starts."""

    def __init__(self, folder: Path, description: dict[str, Any]):
        self.folder, self.description, self.parts = folder, description, Parts(folder)

    def prepare(self, paths: Sequence[str | Path], overwrite: bool) -> dict[str, Any] | None:
        """Returns the manifest if the build is complete; else prepares the folder for its parts.

        Raises UserError if the folder holds another build, unless `overwrite`, which removes that.
        """
        files.remove_unfinished(self.folder)
        begun = self.parts.job()
        manifest = read_folder(self.folder) if (self.folder / MANIFEST).exists() else None
        if reason := self._difference(manifest, begun, paths):
            if not overwrite:
                raise UserError(f"'{self.folder}' holds {reason}; give another --output_dir, or --overwrite")
            self.clear(manifest)
        elif manifest is not None:
            self.parts.remove()
            return manifest
        self.parts.claim({"description": self.description, "inputs": _stamp(paths)})
        return None

    def _difference(self, manifest: dict[str, Any] | None, begun: dict[str, Any] | None, paths: Sequence) -> str:
        if manifest is not None:
            present = {key: value for key, value in manifest.items() if key not in _RESULTS}
        else:
            present = self.description if begun is None else begun.get("description")
        if not isinstance(present, dict):
            return "an unfinished build of another version"
        for key in self.description | present:
            before, now = present.get(key), self.description.get(key)
            if before != now:
                return f"records built with {key} {before!r}, now {now!r}"
        if manifest is not None and (lost := missing_file(self.folder, manifest)):
            return f"an incomplete build: '{lost}' is missing or was changed"
        if manifest is not None:
            with futures.ThreadPoolExecutor() as pool:
                if manifest.get("inputs") != _describe(list(pool.map(input_row, paths))):
                    return "records of another corpus"
        return ""

    def publish(self, manifest: dict[str, Any], parts: dict[str, str], inputs: list[str], bad_lines: list[str]) -> dict:
        """Writes the tables, moves the `parts` to their names, and writes the manifest; returns it complete."""
        table = self.folder / INPUTS
        files.write(table, "sha256\tbytes\tname\n" + "".join(f"{row}\n" for row in inputs))
        manifest = self.description | {"inputs": _describe(inputs), "bad_lines": len(bad_lines)} | manifest
        path = self.folder / _BAD_LINES
        path.unlink(missing_ok=True)
        if bad_lines:
            files.write(path, "\n".join(bad_lines) + "\n")
            print(f"left out {len(bad_lines)} bad lines; '{path}' lists them")
        self.parts.publish(MANIFEST, as_text(manifest) + "\n", parts)
        return manifest

    def clear(self, manifest: dict[str, Any] | None = None) -> None:
        """Removes what a build wrote."""
        # The manifest first: without it the folder is not complete.
        (self.folder / MANIFEST).unlink(missing_ok=True)
        if manifest is not None:
            vocabulary = files.read_object(self.folder / DESCRIPTION_FILE).get("vocabulary", DESCRIPTION_FILE)
            names = [file["name"] for file in listed_files(manifest)]
            for name in (*names, INPUTS, _BAD_LINES, vocabulary, DESCRIPTION_FILE):
                files.inside(self.folder, name, self.folder / MANIFEST).unlink(missing_ok=True)
        self.parts.remove()


def input_row(path: str | Path) -> str:
    """Returns a corpus file's row of inputs.tsv."""
    return f"{sections.digest(path)}\t{sections.size_of(path)}\t{Path(path).name}"


# Neither the names of files nor their order decides what is built.
def _describe(rows: list[str]) -> dict[str, Any]:
    digests, sizes, _ = zip(*(row.split("\t", 2) for row in rows))
    digest = hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
    return {"files": len(rows), "bytes": sum(map(int, sizes)), "sha256": digest}


def _stamp(paths: Iterable[str | Path]) -> str:
    states = [f"{path} {sections.size_of(path)} {sections.changed_at(path)}" for path in paths]
    return hashlib.sha256("\n".join(states).encode()).hexdigest()
