"""What stands in the output folder: nothing, a complete build, or an unfinished one that is brought into one form.

An unfinished build lies in `.parts`: run.json (its description, and the shards still needed where only some are),
spill files, and reports. A shard is done when its report is there and its file has the size the report says. While the
files get their final names, assembly.json holds the manifest to be; a build met in that state gets its parts back.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from tfrecords import inputs
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.build_settings import BuildSettings
from tfrecords.deal import Deal
from tfrecords.inputs import BAD_LINES, INPUTS
from tfrecords.manifest import MANIFEST, PARTS, is_whole, read_folder, write_manifest
from tfrecords.tokenizers.base import TOKENIZER_FILE
from tfrecords.writer import part_path, report_path, spill_path

_RUN, _ASSEMBLY = "run.json", "assembly.json"
# In the manifest but no part of the description.
_RESULTS = ("shards", "inputs", "bad_lines", "splits")


class Standing:
    """The folder of one build, which `description` says."""

    def __init__(self, folder: Path, description: dict[str, Any], settings: BuildSettings):
        self.folder, self.description, self._settings = folder, description, settings
        self.parts = folder / PARTS

    def prepare(self, paths: list[str | Path], deal: Deal, overwrite: bool) -> Deal | None:
        """Makes the folder ready for what is left to do. Returns None when nothing is, else the deal with the shards
        that are needed.

        Raises UserError when the folder holds another build and `overwrite` is off.
        """
        manifest = read_folder(self.folder) if (self.folder / MANIFEST).exists() else None
        standing = self._standing_description(manifest)
        if standing is not None and standing != self.description:
            if not overwrite:
                raise self._other_build(standing)
            self.clear(manifest)
            manifest = None
        needed, stamp = None, inputs.stamps(paths)
        if manifest is not None:
            same = inputs.are_the_same(self.folder, manifest["inputs"], paths)
            if same and is_whole(self.folder, manifest):
                shutil.rmtree(self.parts, ignore_errors=True)
                return None
            if not same and not overwrite:
                raise UserError(
                    f"'{self.folder}' holds records of another corpus; give another --output_dir, or --overwrite, "
                    "which builds anew what changed"
                )
            self._take_apart(manifest)
            needed = self._missing(deal) if same else None
        elif (self.parts / _RUN).exists():
            run = files.read_json(self.parts / _RUN)
            if (self.parts / _ASSEMBLY).exists():
                self._put_back()
            if run["needed"] is not None and run["stamp"] == stamp and run["shards"] == [deal.train, deal.eval]:
                # A power cut may have taken others that stood then.
                needed = sorted({*run["needed"], *self._missing(deal)})
        self._drop_other_shards(deal)
        self.parts.mkdir(exist_ok=True)
        run = {"needed": needed, "stamp": stamp, "shards": [deal.train, deal.eval], "description": self.description}
        files.write_json(self.parts / _RUN, run)
        return Deal(deal.seed, deal.train, deal.eval, deal.threshold, None if needed is None else tuple(needed))

    def report(self, kind: str, number: int) -> dict[str, Any] | None:
        """What a finished task of an earlier run left; None where there is nothing, or a power cut left half of it."""
        with contextlib.suppress(UserError):
            return files.read_json(report_path(self.parts, kind, number))
        return None

    def spilled(self, kind: str, number: int, key: str) -> dict[str, Any] | None:
        """The report of a task whose spill files are as it left them."""
        report = self.report(kind, number)
        if report is None or report["key"] != key:
            return None
        paths = [spill_path(self.parts, kind, number, block) for block in range(report["blocks"])]
        sizes = [path.stat().st_size if path.exists() else None for path in paths]
        return report if sizes == report["block_bytes"] else None

    def reports(self, deal: Deal) -> dict[int, dict[str, Any]]:
        """Of the shards that are done."""
        found = ((shard, self.report("shard", shard)) for shard in range(deal.shards))
        return {shard: report for shard, report in found if report and self._is_there(shard, report)}

    def publish(self, manifest: dict[str, Any]) -> None:
        """Gives the parts the names that the manifest says, then writes it."""
        files.write_json(self.parts / _ASSEMBLY, manifest)
        for file in _files(manifest):
            part = part_path(self.parts, file["shard"], self._settings.gzip)
            if part.exists():
                os.replace(part, self.folder / file["name"])
        files.sync(self.folder)
        write_manifest(self.folder, manifest)
        shutil.rmtree(self.parts)

    def clear(self, manifest: dict[str, Any] | None = None) -> None:
        """Removes a build, and nothing that it did not write."""
        manifest = manifest or (files.read_json(self.parts / _ASSEMBLY) if (self.parts / _ASSEMBLY).exists() else None)
        # The manifest first: without it nobody trusts the rest.
        (self.folder / MANIFEST).unlink(missing_ok=True)
        if manifest:
            names = [file["name"] for file in _files(manifest)] + [INPUTS, BAD_LINES]
            if (self.folder / TOKENIZER_FILE).exists():
                names += [str(files.read_json(self.folder / TOKENIZER_FILE).get("vocabulary")), TOKENIZER_FILE]
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.parts, ignore_errors=True)

    def _standing_description(self, manifest: dict[str, Any] | None) -> dict[str, Any] | None:
        if manifest is None and (self.parts / _RUN).exists():
            run = files.read_json(self.parts / _RUN)
            # An older version's run.json is the description itself.
            return run.get("description", run)
        # Some ids' lists and tuples are the same in JSON.
        return manifest and {key: value for key, value in manifest.items() if key not in _RESULTS}

    def _other_build(self, standing: dict[str, Any]) -> UserError:
        wanted = self.description
        name = next(key for key in wanted | standing if standing.get(key, ...) != wanted.get(key, ...))
        change = f"{name} {standing.get(name)!r}, now {wanted.get(name)!r}"
        return UserError(
            f"'{self.folder}' holds records built with {change}; give another --output_dir, or --overwrite"
        )

    def _take_apart(self, manifest: dict[str, Any]) -> None:
        """A complete build becomes an unfinished one of which every shard is done that is there."""
        self.parts.mkdir(exist_ok=True)
        run = {"needed": None, "stamp": "", "shards": manifest["shards"], "description": self.description}
        files.write_json(self.parts / _RUN, run)
        files.write_json(self.parts / _ASSEMBLY, manifest)
        (self.folder / MANIFEST).unlink()
        self._put_back()

    def _put_back(self) -> None:
        for file in _files(files.read_json(self.parts / _ASSEMBLY)):
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
        """Where the text fills another number of shards now, none of those that stand is of use."""
        if (self.parts / _RUN).exists() and files.read_json(self.parts / _RUN)["shards"] != [deal.train, deal.eval]:
            shutil.rmtree(self.parts)


def _files(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [file for split in manifest["splits"].values() for file in split["files"]]
