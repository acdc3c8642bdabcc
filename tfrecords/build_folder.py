"""The output folder of a build: detects what is already built, and completes it or starts anew.

`.parts` holds an unfinished build. A shard is done when its report exists and its record file has the reported size.
While files are renamed, assembly.json holds the final manifest.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path
from typing import Any

from tfrecords import sections
from tfrecords.base import files
from tfrecords.base.errors import UserError, first_line
from tfrecords.build_settings import UNSAID, BuildSettings
from tfrecords.deal import Deal
from tfrecords.manifest import MANIFEST, PARTS, is_whole, listed_files, read_folder, write_manifest
from tfrecords.sections import Section
from tfrecords.tokenizers.base import description_in
from tfrecords.worker import part_path, report_path, spill_path

_INPUTS, _BAD_LINES = "inputs.tsv", "bad_lines.txt"
_HEADER = "sha256 of the sections' sha256\tbytes\tname\n"
_RUN, _ASSEMBLY = "run.json", "assembly.json"
# Manifest entries that are not part of the description.
_RESULTS = ("shards", "inputs", "bad_lines", "splits")

# What later steps read of a task's report; one without is damaged, and its task runs again.
_KEYS = {
    "piece": {"key", "blocks", "block_bytes", "documents", "held_out", "text_bytes", "lowest", "highest", "bad_lines"}
    | {"digests"},
    "shard": {"source", "text_bytes", "documents", "examples", "bytes", "sha256"},
}


class BuildFolder:
    """The output folder of one build; `description`: manifest entries known when the build starts."""

    def __init__(self, folder: Path, description: dict[str, Any], settings: BuildSettings):
        self.folder, self.description, self._settings = folder, description, settings
        self.parts = folder / PARTS

    def prepare(self, paths: list[str | Path], deal: Deal, piece_bytes: int, overwrite: bool) -> Deal | None:
        """Returns `deal` with the missing shards as `needed`; None if the build is complete.

        Raises UserError if the folder holds another build, unless `overwrite`.
        """
        files.remove_unfinished(self.folder)
        manifest = read_folder(self.folder) if (self.folder / MANIFEST).exists() else None
        present = self._present_description(manifest)
        if present is not None and present != self.description:
            if not overwrite and self._is_complete_of_version_2(manifest, present, paths):
                return None
            if not overwrite:
                raise self._other_build(present)
            self.clear(manifest)
            manifest = None
        needed, stamp = None, stamp_files(paths)
        if manifest is not None:
            same = self._was_made_from(manifest["inputs"], paths)
            if same and is_whole(self.folder, manifest):
                shutil.rmtree(self.parts, ignore_errors=True)
                return None
            if not same and not overwrite:
                raise UserError(
                    f"'{self.folder}' holds records of another corpus; give another --output_dir, or --overwrite, "
                    "which builds anew what changed"
                )
            self._take_apart(manifest)
            # With another piece size, equal documents and parts of long ones are assigned to other shards.
            needed = self._missing(deal) if same and manifest["inputs"]["section_bytes"] == piece_bytes else None
        elif (self.parts / _RUN).exists():
            run = self._run()
            if (self.parts / _ASSEMBLY).exists():
                self._put_back()
            made_alike = run["shards"] == [deal.train, deal.eval] and run.get("section_bytes") == piece_bytes
            if run["needed"] is not None and run["stamp"] == stamp and made_alike:
                # After a power cut, shards that were not listed as needed may be missing, too.
                needed = sorted({*run["needed"], *self._missing(deal)})
        self._drop_other_shards(deal)
        self.parts.mkdir(exist_ok=True)
        self._write_run(needed, stamp, [deal.train, deal.eval], piece_bytes)
        return dataclasses.replace(deal, needed=None if needed is None else tuple(needed))

    def _write_run(self, needed: list[int] | None, stamp: str, shards: list[int], piece_bytes: int) -> None:
        run = {"needed": needed, "stamp": stamp, "shards": shards, "section_bytes": piece_bytes}
        run["description"] = self.description
        files.write_json(self.parts / _RUN, run)

    def _run(self) -> dict[str, Any]:
        run = self._state(_RUN)
        # The run.json of version 0.1.0 is the description itself.
        if "description" not in run and "format_version" in run:
            return run
        needed, shards, size = run.get("needed", ...), run.get("shards"), run.get("section_bytes")
        is_whole = needed is None or (isinstance(needed, list) and all(type(shard) is int for shard in needed))
        # Earlier versions noted no section_bytes.
        is_whole &= isinstance(shards, list) and isinstance(size, int | None) and isinstance(run.get("stamp"), str)
        if not is_whole or not isinstance(run.get("description"), dict):
            raise self._damaged(_RUN, "it does not describe a build")
        return run

    def _assembly(self) -> dict[str, Any]:
        manifest = self._state(_ASSEMBLY)
        try:
            whole = all(isinstance(file["shard"], int) and file["name"] for file in listed_files(manifest))
        except (TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise self._damaged(_ASSEMBLY, "it lists no files")
        return manifest

    def _state(self, name: str) -> dict[str, Any]:
        try:
            found = files.read_json(self.parts / name)
        except UserError as error:
            raise self._damaged(name, first_line(error)) from error
        if not isinstance(found, dict):
            raise self._damaged(name, "it holds no JSON object")
        return found

    def _damaged(self, name: str, why: str) -> UserError:
        return UserError(
            f"'{self.parts / name}' is damaged: {why}; remove '{self.parts}' and give the command again, which then "
            "builds anew"
        )

    def _is_complete_of_version_2(
        self, manifest: dict[str, Any] | None, present: dict[str, Any], paths: list[str | Path]
    ) -> bool:
        if manifest is None or present != self.description | {"format_version": 2}:
            return False
        complete = self._was_made_from(manifest["inputs"], paths) and is_whole(self.folder, manifest)
        if complete:
            print(
                f"'{self.folder}' was built by an earlier version, in which white space decided with the text which "
                "documents are held out, so that copies of them may be in training; --overwrite builds it anew"
            )
        return complete

    def report(self, kind: str, number: int) -> dict[str, Any] | None:
        """Reads a finished task's report, such as shard 3's; None if missing or half-written."""
        with contextlib.suppress(UserError):
            found = files.read_json(report_path(self.parts, kind, number))
            if isinstance(found, dict) and _KEYS[kind] <= found.keys():
                return found
        return None

    def spilled(self, piece: int, key: str) -> dict[str, Any] | None:
        """Returns a corpus piece's report; None if the report has another `key`, or the piece's spill files changed."""
        report = self.report("piece", piece)
        if report is None or report["key"] != key:
            return None
        paths = [spill_path(self.parts, piece, block) for block in range(report["blocks"])]
        sizes = [path.stat().st_size if path.exists() else None for path in paths]
        return report if sizes == report["block_bytes"] else None

    def reports(self, deal: Deal) -> dict[int, dict[str, Any]]:
        reports = ((shard, self.report("shard", shard)) for shard in range(deal.shards))
        return {shard: report for shard, report in reports if report and self._is_there(shard, report)}

    def write_inputs(self, pieces: list[list[Section]], digests: list[list[str]], piece_bytes: int) -> dict[str, Any]:
        of_file = collections.defaultdict(list)
        for piece, of_piece in zip(pieces, digests):
            for section, digest in zip(piece, of_piece):
                of_file[section.path].append(digest)
        rows = (f"{_joined(parts)}\t{sections.size_of(path)}\t{Path(path).name}\n" for path, parts in of_file.items())
        path = self.folder / _INPUTS
        files.write(path, _HEADER + "".join(rows))
        total = sum(size for size, _, _ in self._input_rows())
        return {"files": len(of_file), "bytes": total, "section_bytes": piece_bytes, "list": files.sha256(path)}

    def write_bad_lines(self, bad_lines: list[str]) -> None:
        path = self.folder / _BAD_LINES
        path.unlink(missing_ok=True)
        if bad_lines:
            files.write(path, "\n".join(bad_lines) + "\n")
            print(f"left out {len(bad_lines)} bad lines; '{path}' lists them")

    def publish(self, manifest: dict[str, Any]) -> None:
        files.write_json(self.parts / _ASSEMBLY, manifest)
        for file in _files(manifest):
            part = part_path(self.parts, file["shard"], self._settings.gzip)
            if part.exists():
                os.replace(part, self.folder / file["name"])
        files.sync(self.folder)
        write_manifest(self.folder, manifest)
        shutil.rmtree(self.parts)

    def clear(self, manifest: dict[str, Any] | None = None) -> None:
        manifest = manifest or (self._assembly() if (self.parts / _ASSEMBLY).exists() else None)
        # The manifest first: without it the folder is not complete.
        (self.folder / MANIFEST).unlink(missing_ok=True)
        if manifest:
            names = [file["name"] for file in _files(manifest)] + [_INPUTS, _BAD_LINES]
            if description := description_in(self.folder):
                names += [str(files.read_json(description).get("vocabulary")), description.name]
            for path in [files.inside(self.folder, name, self.folder / MANIFEST) for name in names]:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.parts, ignore_errors=True)

    def _was_made_from(self, described: Any, paths: list[str | Path]) -> bool:
        path = self.folder / _INPUTS
        if not isinstance(described, dict) or not path.exists() or files.sha256(path) != described["list"]:
            return False
        rows = self._input_rows()
        if sorted(size for size, _, _ in rows) != sorted(map(sections.size_of, paths)):
            return False
        since = path.stat().st_mtime
        known = collections.defaultdict(list)
        for size, name, digest in rows:
            known[size, name].append(digest)

        def digest_of(path: str | Path) -> str:
            of_name = known.get((sections.size_of(path), Path(path).name), [])
            if len(of_name) == 1 and sections.changed_at(path) < since:
                return of_name[0]
            of_file = itertools.chain.from_iterable(sections.plan_pieces([path], described["section_bytes"]))
            return _joined(map(sections.digest, of_file))

        with futures.ThreadPoolExecutor(4) as pool:
            return sorted(pool.map(digest_of, paths)) == sorted(digest for _, _, digest in rows)

    def _input_rows(self) -> list[tuple[int, str, str]]:
        lines = (self.folder / _INPUTS).read_text(encoding="utf-8").split("\n")[1:-1]
        rows = (line.split("\t", 2) for line in lines)
        return [(int(size), name, digest) for digest, size, name in rows]

    def _present_description(self, manifest: dict[str, Any] | None) -> dict[str, Any] | None:
        if manifest is None and (self.parts / _RUN).exists():
            run = self._run()
            # The run.json of version 0.1.0 is the description itself.
            return run.get("description", run)
        # Some ids' lists and tuples are the same in JSON.
        return manifest and {key: value for key, value in manifest.items() if key not in _RESULTS}

    def _other_build(self, present: dict[str, Any]) -> UserError:
        asked = self.description
        different = [key for key in asked | present if present.get(key, ...) != asked.get(key, ...)]
        changes = []
        for name in different:
            before, now = (described.get(name, UNSAID.get(name)) for described in (present, asked))
            changes.append(f"{name} {before!r}, now {now!r}")
        if different[0] != "format_version":
            return UserError(
                f"'{self.folder}' holds records built with {changes[0]}; give another --output_dir, or --overwrite"
            )
        fix = "finish it with that version"
        if different == ["format_version", "word_rule"]:
            before = present.get("word_rule", UNSAID["word_rule"])
            fix = f"if it is complete, add --word_rule={before} to keep it; if not, {fix}"
        return UserError(
            f"'{self.folder}' was begun by another version ({'; '.join(changes)}), which holds out other documents; "
            f"{fix}, give another --output_dir, or --overwrite to build it anew"
        )

    def _take_apart(self, manifest: dict[str, Any]) -> None:
        self.parts.mkdir(exist_ok=True)
        self._write_run(None, "", manifest["shards"], manifest["inputs"]["section_bytes"])
        files.write_json(self.parts / _ASSEMBLY, manifest)
        (self.folder / MANIFEST).unlink()
        self._put_back()

    def _put_back(self) -> None:
        for file in _files(self._assembly()):
            part, final = part_path(self.parts, file["shard"], self._settings.gzip), self.folder / file["name"]
            if final.exists():
                os.replace(final, part)
            report = {key: value for key, value in file.items() if key not in ("name", "shard")}
            if not report_path(self.parts, "shard", file["shard"]).exists():
                files.write_json(report_path(self.parts, "shard", file["shard"]), report, durable=False)
        files.sync(self.parts)
        (self.parts / _ASSEMBLY).unlink()

    def _missing(self, deal: Deal) -> list[int]:
        done = self.reports(deal)
        return [shard for shard in range(deal.shards) if shard not in done]

    def _is_there(self, shard: int, report: dict[str, Any]) -> bool:
        part = part_path(self.parts, shard, self._settings.gzip)
        return part.exists() and part.stat().st_size == report["bytes"]

    def _drop_other_shards(self, deal: Deal) -> None:
        if (self.parts / _RUN).exists() and self._run()["shards"] != [deal.train, deal.eval]:
            shutil.rmtree(self.parts)


def _files(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    for file in listed_files(manifest):
        files.inside(Path(), file["name"], MANIFEST)
    return listed_files(manifest)


def stamp_files(paths: Iterable[str | Path]) -> str:
    """Digest of the files' names, sizes and modification times."""
    states = [f"{path} {sections.size_of(path)} {sections.changed_at(path)}" for path in paths]
    return hashlib.sha256("\n".join(states).encode()).hexdigest()


def _joined(digests: Iterable[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()
