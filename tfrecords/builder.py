"""Builds a corpus's records: assigns documents to shards (record files), and writes the missing shards."""

import dataclasses
import hashlib
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tfrecords import corpus, runners, sections
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar
from tfrecords.build_folder import BuildFolder, stamp_files
from tfrecords.build_settings import BuildSettings
from tfrecords.deal import SPILL_FORMAT, Deal
from tfrecords.duplicates import count_also_in_training
from tfrecords.manifest import FORMAT_VERSION, SPLITS, read_folder
from tfrecords.mask_share import COUNTS, describe_miss
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.worker import Worker, spill_path, too_many

# Of a piece of the corpus: a shard's part that is worth the seek, and what a process holds in memory.
_SEEK_BYTES, _MOST_BYTES = 1 << 16, 1 << 28
# Bytes that a process builds in about its start-up time.
_SMALL_TEXT = 12_000_000
# A pair task learns nothing from labels with so large a majority.
_ONE_SIDED = 0.15


def build(
    patterns: str,
    output_dir: str | os.PathLike,
    tokenizer: Tokenizer,
    settings: BuildSettings,
    workers: int,
    overwrite: bool,
    runner: str = "local",
    max_bad_lines: int = 0,
) -> dict[str, Any]:
    """Builds the records of a corpus and returns the manifest.

    A complete folder of the same build is left unchanged; an incomplete one is completed. The bytes do not depend on
    `workers`. patterns: comma-separated globs. overwrite: whether a different build may be removed. runner: "local" or
    "ray". max_bad_lines: JSON lines that may lack a text.

    Raises UserError for bad input, a split without examples, or a folder in use or with another build.
    """
    paths = corpus.find_files(patterns)
    text_bytes = sum(map(sections.text_bytes, paths))
    settings = settings.for_corpus(text_bytes)
    folder = files.make_output_dir(output_dir)
    with files.locked(folder):
        build_folder = BuildFolder(folder, _describe(tokenizer, settings), settings)
        deal = Deal.of(settings, text_bytes)
        piece_bytes = _piece_bytes(settings, deal)
        deal = build_folder.prepare(paths, deal, piece_bytes, overwrite)
        if deal is None:
            manifest = read_folder(folder)
            print(f"'{folder}' is complete already: {_counts(manifest)}")
            _warn_of_missed_share(manifest)
            return manifest
        with runners.RUNNERS[runner](Worker(settings, tokenizer, build_folder.parts), workers) as run:
            return _Build(build_folder, deal, paths, piece_bytes, settings, run, max_bad_lines).finish(tokenizer)


def _describe(tokenizer: Tokenizer, settings: BuildSettings) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        **settings.described(),
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "pad_id": tokenizer.pad_id,
        "cls_id": tokenizer.cls_id,
        "sep_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
        "special_ids": tokenizer.special_ids.tolist(),
    }


def _piece_bytes(settings: BuildSettings, deal: Deal) -> int:
    worthwhile = min(deal.shards * _SEEK_BYTES, settings.chunk_bytes * deal.shards // 128, _MOST_BYTES)
    return max(settings.chunk_bytes, worthwhile)


class _Build:
    def __init__(
        self,
        folder: BuildFolder,
        deal: Deal,
        paths: list,
        piece_bytes: int,
        settings: BuildSettings,
        run: runners.Run,
        max_bad_lines: int,
    ):
        self._folder, self._parts, self._deal = folder, folder.parts, deal
        self._settings, self._run, self._max_bad_lines = settings, run, max_bad_lines
        self._piece_bytes = piece_bytes
        self._pieces = sections.plan_pieces(paths, self._piece_bytes)

    def finish(self, tokenizer: Tokenizer) -> dict[str, Any]:
        start = time.monotonic()
        try:
            reports = self._build()
            manifest = self._assemble(reports, tokenizer)
        except OSError as error:
            raise UserError(
                f"'{self._folder.folder}' is unfinished: {error.strerror or error}; fix that, and the same command "
                "goes on where this one stopped"
            ) from error
        text_bytes = sum(report["text_bytes"] for report in reports)
        seconds = time.monotonic() - start
        folder = self._folder.folder
        print(f"'{folder}' holds {_counts(manifest)}, from {text_bytes / 1e6:,.1f} MB of text in {seconds:,.1f} s")
        _warn_of_encoding(self._read)
        _say_duplicates(manifest)
        _warn_of_one_sided_labels(manifest)
        _warn_of_missed_share(manifest)
        return manifest

    def _build(self) -> list[dict[str, Any]]:
        self._read_pieces()
        threshold = _threshold_for_both_splits(self._read, self._settings)
        if threshold is not None:
            self._deal = dataclasses.replace(self._deal, threshold=threshold)
            self._read_pieces()
        blocks, done = self._blocks(), self._folder.reports(self._deal)
        needed = range(self._deal.shards) if self._deal.needed is None else self._deal.needed
        tasks = [(shard, "build", (shard, blocks, done.get(shard))) for shard in needed]
        total = sum(report["text_bytes"] for report in self._read)
        if self._deal.needed is not None:
            total = total * len(tasks) // self._deal.shards
        with progress_bar(total=total, desc="building", unit="B", unit_scale=True) as bar:
            start, text_bytes, examples = time.monotonic(), 0, 0
            for shard, report in self._run(tasks, small=len(tasks) < 3 and total < _SMALL_TEXT):
                done[shard] = report
                text_bytes += report["text_bytes"]
                examples += report["examples"]
                seconds = time.monotonic() - start
                bar.set_postfix_str(f"{text_bytes / 1e6 / seconds:.1f} MB text/s, {examples / seconds:,.0f} examples/s")
                bar.update(report["text_bytes"])
        return [done[shard] for shard in range(self._deal.shards)]

    def _blocks(self) -> list[Path]:
        return [
            spill_path(self._parts, number, block)
            for number, report in enumerate(self._read)
            for block in range(report["blocks"])
        ]

    def _read_pieces(self) -> None:
        keys = [self._key(piece) for piece in self._pieces]
        reports = {number: report for number, key in enumerate(keys) if (report := self._folder.spilled(number, key))}
        tasks = [
            (number, "read_piece", (self._deal, number, piece, self._piece_bytes, keys[number], self._max_bad_lines))
            for number, piece in enumerate(self._pieces)
            if number not in reports
        ]
        with progress_bar(total=len(tasks), desc="reading", unit=" pieces", disable=len(tasks) < 2) as bar:
            for number, report in self._run(tasks):
                reports[number] = report
                bar.update()
        self._read = [reports[number] for number in range(len(self._pieces))]
        self._bad_lines = [line for report in self._read for line in report["bad_lines"]]
        if len(self._bad_lines) > self._max_bad_lines:
            raise too_many(self._bad_lines, self._max_bad_lines)

    def _key(self, piece: list[sections.Section]) -> str:
        described = [
            [(section.path, section.start, section.end) for section in piece],
            stamp_files([section.path for section in piece]),
            dataclasses.asdict(self._deal),
            self._piece_bytes,
            self._settings.text_field,
            self._settings.line_documents,
            [self._settings.min_sentences, self._settings.split_sentences],
            _boot_id(),
            SPILL_FORMAT,
        ]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()

    def _assemble(self, reports: list[dict[str, Any]], tokenizer: Tokenizer) -> dict[str, Any]:
        folder, deal, gzip = self._folder, self._deal, self._settings.gzip
        splits = {
            "train": _split("train", 0, reports[: deal.train], gzip),
            "eval": _split("eval", deal.train, reports[deal.train :], gzip),
        }
        try:
            _check_filled(splits, self._settings)
        except UserError:
            # Another corpus or other settings are needed, for which the parts are useless.
            folder.clear()
            raise
        found = count_also_in_training(self._blocks())
        share = found / max(splits["eval"]["documents"], 1)
        splits["eval"]["also_in_training"] = {"documents": found, "share": share}
        digests = [report["digests"] for report in self._read]
        manifest = folder.description | {
            "shards": [deal.train, deal.eval],
            "inputs": folder.write_inputs(self._pieces, digests, self._piece_bytes),
            "bad_lines": len(self._bad_lines),
            "splits": splits,
        }
        tokenizer.save(folder.folder)
        folder.write_bad_lines(self._bad_lines)
        folder.publish(manifest)
        return manifest


def _split(split: str, first: int, reports: list[dict[str, Any]], gzip: bool) -> dict[str, Any]:
    filled = [first + number for number, report in enumerate(reports) if report["examples"]]
    suffix = ".tfrecord.gz" if gzip else ".tfrecord"
    listed = [
        {"name": f"{split}-{number:05d}-of-{len(filled):05d}{suffix}", "shard": shard} | reports[shard - first]
        for number, shard in enumerate(filled)
    ]
    # Reports of an older version, and those of permutation rows, have no counts of masks.
    totals = (
        "documents",
        "examples",
        "tokens",
        "label_1",
        *(key for key in COUNTS if any(key in one for one in reports)),
    )
    return {key: sum(report.get(key, 0) for report in reports) for key in totals} | {"files": listed}


def _threshold_for_both_splits(read: list[dict[str, Any]], settings: BuildSettings) -> float | None:
    documents, held_out = (sum(report[key] for report in read) for key in ("documents", "held_out"))
    if not settings.held_out_fraction or documents < 2 or 0 < held_out < documents:
        return None
    if held_out:
        return max(report["highest"] for report in read)
    return min(report["lowest"] for report in read) + 2.0**-53


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""


def _check_filled(splits: dict[str, Any], settings: BuildSettings) -> None:
    documents = sum(split["documents"] for split in splits.values())
    if not documents:
        least = settings.min_sentences
        raise UserError(
            f"the corpus holds no document of {least} sentences; check --input, add --split_sentences where a line is "
            f"a paragraph, or lower --min_sentences={least}"
            if least > 1
            else "the corpus holds no document; check --input"
        )
    hint = "documents need two sentences for a pair: a line each, or --split_sentences; or set --pair_task=none"
    if settings.objective == "permutation":
        hint = (
            "a stream needs more tokens than --max_seq_length, and a file as many streams as --streams: give more text"
        )
    other_share = "add documents (a blank line parts them in plain text), or set --held_out_fraction=0"
    if not splits["train"]["documents"]:
        raise UserError(f"all {documents} documents of the corpus are held out, none is left to train: {other_share}")
    if not splits["train"]["examples"]:
        raise UserError(f"the {documents} documents of the corpus give no training example: {hint}")
    if settings.held_out_fraction and not splits["eval"]["examples"]:
        raise UserError(
            f"the {splits['eval']['documents']} of {documents} documents held out give no example: raise "
            f"--held_out_fraction, {other_share}"
        )


def _warn_of_encoding(read: list[dict[str, Any]]) -> None:
    counts = Counter[str]()
    for report in read:
        # Reports of a build that an older version began have no counts.
        counts.update(report.get("not_utf8", {}))
    for path, count in sorted(counts.items()):
        print(f"warning: {corpus.describe_not_utf8(path, count)}")


def _say_duplicates(manifest: dict[str, Any]) -> None:
    documents, found = (manifest["splits"]["eval"][key] for key in ("documents", "also_in_training"))
    if documents:
        print(
            f"{found['share']:.1%} of the held-out documents ({found['documents']:,} of {documents:,}) also stand "
            "whole in training, compared without case, accents, white space and line breaks"
        )


def _warn_of_one_sided_labels(manifest: dict[str, Any]) -> None:
    if manifest["pair_task"] == "none":
        return
    for split in SPLITS:
        counts = manifest["splits"][split]
        examples, ones = counts["examples"], counts["label_1"]
        # With few examples, one label may prevail by chance.
        if examples >= 20 and not _ONE_SIDED < ones / examples < 1 - _ONE_SIDED:
            print(
                f"warning: {ones / examples:.1%} of the {examples:,} {split} examples have label 1, where about half "
                f"should: --pair_task={manifest['pair_task']} finds its pairs among the documents of a file, here "
                f"{counts['documents']:,} documents in {len(counts['files']):,} files; give more or shorter "
                "documents with two sentences or more, a larger --chunk_megabytes, or another --pair_task"
            )


def _warn_of_missed_share(manifest: dict[str, Any]) -> None:
    if miss := describe_miss(manifest):
        print(f"warning: {miss}")


def _counts(manifest: dict[str, Any]) -> str:
    splits = manifest["splits"]
    return " and ".join(
        f"{splits[name]['examples']:,} {name} examples of {splits[name]['documents']:,} documents" for name in SPLITS
    )
