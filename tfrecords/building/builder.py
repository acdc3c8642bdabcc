"""Builds a corpus's records: assigns documents to shards (record files), and writes the missing shards.

A folder is complete, being built, or refused because it holds another build.
"""

import hashlib
import json
import os
import time
from collections import Counter
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import Parts
from tfrecords.base.script import progress_bar
from tfrecords.building import runners
from tfrecords.building.deal import Deal
from tfrecords.building.settings import BuildSettings
from tfrecords.building.worker import Worker
from tfrecords.corpus import sections
from tfrecords.corpus.documents import describe_not_utf8, find_files
from tfrecords.reading.manifest import FORMAT_VERSION, MANIFEST, SPLITS, listed_files, missing_file, read_folder
from tfrecords.tokenizers.base import DESCRIPTION_FILE, Tokenizer

# Of a piece of the corpus: a shard's part that is worth the seek, and what a process holds in memory.
_SEEK_BYTES, _MOST_BYTES = 1 << 16, 1 << 28
# Bytes that a process builds in about its start-up time.
_SMALL_TEXT = 12_000_000
# What the manifest counts of each split.
_COUNTS = ("documents", "examples", "tokens", "label_1")
_INPUTS = "inputs.tsv"


def build(
    patterns: str,
    output_dir: str | os.PathLike,
    tokenizer: Tokenizer,
    settings: BuildSettings,
    workers: int,
    overwrite: bool,
    runner: str = "local",
) -> dict[str, Any]:
    """Builds the records of a corpus and returns the manifest.

    A complete folder of the same build is left unchanged; an incomplete one is completed. The bytes do not depend on
    `workers`. patterns: comma-separated globs. overwrite: whether a different build may be removed. runner: "local" or
    "ray".

    Raises UserError for bad input, a split without examples, or a folder in use or with another build.
    """
    paths = find_files(patterns)
    text_bytes = sum(map(sections.text_bytes, paths))
    settings = settings.for_corpus(text_bytes)
    parts = Parts(files.make_output_dir(output_dir))
    with files.locked(parts.folder):
        with futures.ThreadPoolExecutor() as pool:
            digests = pool.map(sections.digest, paths)
            inputs = [f"{sha}\t{sections.size_of(path)}\t{Path(path).name}" for path, sha in zip(paths, digests)]
        description = _describe(tokenizer, settings, inputs)
        if manifest := _prepare(parts, description, overwrite):
            print(f"'{parts.folder}' is complete already: {_counts(manifest)}")
            return manifest
        deal = Deal.of(settings, text_bytes)
        worthwhile = min(deal.shards * _SEEK_BYTES, settings.chunk_bytes * deal.shards // 128, _MOST_BYTES)
        worker = Worker(settings, tokenizer, parts, deal, max(settings.chunk_bytes, worthwhile))
        pieces = sections.plan_pieces(paths, worker.piece_bytes)
        with runners.RUNNERS[runner](worker, workers) as run:
            return _Build(worker, description, inputs, pieces, run).finish()


def _describe(tokenizer: Tokenizer, settings: BuildSettings, inputs: list[str]) -> dict[str, Any]:
    # Neither the names of files nor their order decides what is built.
    digests, sizes, _ = zip(*(row.split("\t", 2) for row in inputs))
    digest = hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
    return {
        "format_version": FORMAT_VERSION,
        **settings.described(),
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        **{f"{role}_id": getattr(tokenizer, f"{role}_id") for role in ("pad", "cls", "sep", "mask")},
        "special_ids": tokenizer.special_ids.tolist(),
        "inputs": {"files": len(inputs), "bytes": sum(map(int, sizes)), "sha256": digest},
    }


def _prepare(parts: Parts, description: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    folder = parts.folder
    files.remove_unfinished(folder)
    begun = parts.job()
    manifest = read_folder(folder) if (folder / MANIFEST).exists() else None
    if reason := _difference(folder, description, begun, manifest):
        if not overwrite:
            raise UserError(f"'{folder}' holds {reason}; give another --output_dir, or --overwrite")
        _clear(folder, manifest)
    elif manifest is not None:
        parts.remove()
        return manifest
    parts.claim(description)
    return None


def _difference(folder: Path, description: dict[str, Any], begun: dict | None, manifest: dict | None) -> str:
    present = begun or description
    if manifest is not None:
        present = {key: value for key, value in manifest.items() if key != "splits"}
    for key in description | present:
        before, now = present.get(key), description.get(key)
        if before != now:
            by_settings = f"records built with {key} {before!r}, now {now!r}"
            return "records of another corpus" if key == "inputs" else by_settings
    lost = missing_file(folder, listed_files(manifest)) if manifest else ""
    return f"an incomplete build: '{lost}' is missing or was changed" if lost else ""


def _clear(folder: Path, manifest: dict[str, Any] | None) -> None:
    # The manifest first: without it the folder is not complete.
    (folder / MANIFEST).unlink(missing_ok=True)
    if manifest is not None:
        vocabulary = files.read_object(folder / DESCRIPTION_FILE).get("vocabulary", DESCRIPTION_FILE)
        names = [file["name"] for file in listed_files(manifest)]
        for name in (*names, _INPUTS, vocabulary, DESCRIPTION_FILE):
            files.inside(folder, name, folder / MANIFEST).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Build:
    worker: Worker
    description: dict[str, Any]
    inputs: list[str]
    pieces: list[list[sections.Section]]
    run: runners.Run

    def finish(self) -> dict[str, Any]:
        start = time.monotonic()
        parts = self.worker.parts
        try:
            read = self._read()
            reports = self._build([parts.file(name) for report in read for name in report["files"]])
            manifest = self._publish(reports)
        except OSError as error:
            raise UserError(
                f"'{parts.folder}' is unfinished: {error.strerror or error}; fix that, and the same command goes on "
                "where this one stopped"
            ) from error
        megabytes, seconds = sum(one["text_bytes"] for one in reports) / 1e6, time.monotonic() - start
        print(f"'{parts.folder}' holds {_counts(manifest)}, from {megabytes:,.1f} MB of text in {seconds:,.1f} s")
        not_utf8 = sum((Counter(report["not_utf8"]) for report in read), Counter[str]())
        for path, count in sorted(not_utf8.items()):
            print(f"warning: {describe_not_utf8(path, count)}")
        return manifest

    def _read(self) -> list[dict[str, Any]]:
        # Nobody waits for spill files to be on the disk: after a power cut they are written anew.
        boot, names = _boot_id(), [f"piece-{number:06d}" for number in range(len(self.pieces))]
        done = {number: report for number, report in self._done(names).items() if report["boot"] == boot}
        tasks = [
            (number, "read_piece", (name, piece, boot))
            for number, (name, piece) in enumerate(zip(names, self.pieces))
            if number not in done
        ]
        with progress_bar(total=len(tasks), desc="reading", unit=" pieces", disable=len(tasks) < 2) as bar:
            for number, report in self.run(tasks):
                done[number] = report
                bar.update()
        return [done[number] for number in range(len(names))]

    def _build(self, spills: list[Path]) -> list[dict[str, Any]]:
        names = [f"shard-{shard:06d}" for shard in range(self.worker.deal.shards)]
        done = self._done(names)
        tasks = [(shard, "build", (name, shard, spills)) for shard, name in enumerate(names) if shard not in done]
        total = sum(path.stat().st_size for path in spills) * len(tasks) // len(names)
        with progress_bar(total=total, desc="building", unit="B", unit_scale=True) as bar:
            for shard, report in self.run(tasks, small=len(tasks) < 3 and total < _SMALL_TEXT):
                done[shard] = report
                bar.update(report["text_bytes"])
        return [done[shard] for shard in range(len(names))]

    def _done(self, names: list[str]) -> dict[int, dict[str, Any]]:
        return {number: report for number, name in enumerate(names) if (report := self.worker.parts.done(name))}

    def _publish(self, reports: list[dict]) -> dict[str, Any]:
        train, folder = self.worker.deal.train, self.worker.parts.folder
        splits, parts = {}, {}
        for split, of_split in zip(SPLITS, (reports[:train], reports[train:])):
            filled = [report for report in of_split if report["examples"]]
            listed = []
            for number, report in enumerate(filled):
                (part,) = report["files"]
                name = parts[part] = f"{split}-{number:05d}-of-{len(filled):05d}.tfrecord"
                listed.append({"name": name} | {key: value for key, value in report.items() if key != "files"})
            counts = {key: sum(report[key] for report in of_split) for key in _COUNTS}
            splits[split] = counts | {"files": listed}
        if said := _without_examples(splits, self.worker.settings):
            # Another corpus or other settings are needed, for which the parts are useless.
            self.worker.parts.remove()
            raise UserError(said)
        self.worker.tokenizer.save(folder)
        files.write(folder / _INPUTS, "sha256\tbytes\tname\n" + "".join(f"{row}\n" for row in self.inputs))
        manifest = self.description | {"splits": splits}
        self.worker.parts.publish(MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", parts)
        return manifest


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""


def _without_examples(splits: dict[str, Any], settings: BuildSettings) -> str:
    documents = sum(split["documents"] for split in splits.values())
    hint = "documents need two sentences for a pair: a line each, or --split_sentences; or set --pair_task=none"
    if settings.objective == "permutation":
        hint = (
            "a stream needs more tokens than --max_seq_length, and a file as many streams as --streams: give more text"
        )
    for name, split in splits.items():
        if not split["documents"]:
            hint = "add documents (a blank line parts them in plain text), or set another --held_out_fraction"
        if not split["examples"] and (name == "train" or settings.held_out_fraction):
            return (
                f"of the {documents} documents of the corpus {split['documents']} are for {name} records and give no "
                f"example: {hint}"
            )
    return ""


def _counts(manifest: dict[str, Any]) -> str:
    splits = manifest["splits"]
    return " and ".join(
        f"{splits[name]['examples']:,} {name} examples of {splits[name]['documents']:,} documents" for name in SPLITS
    )
