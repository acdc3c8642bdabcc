"""Builds a corpus's records: assigns documents to shards (record files), and writes the missing shards."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrecords import corpus, runners, sections
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import Parts
from tfrecords.base.script import progress_bar
from tfrecords.build_folder import BuildFolder
from tfrecords.build_settings import BuildSettings
from tfrecords.deal import Deal
from tfrecords.manifest import FORMAT_VERSION, SPLITS
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.worker import Worker, too_many

# Of a piece of the corpus: a shard's part that is worth the seek, and what a process holds in memory.
_SEEK_BYTES, _MOST_BYTES = 1 << 16, 1 << 28
# Bytes that a process builds in about its start-up time.
_SMALL_TEXT = 12_000_000
# A pair task learns nothing from labels with so large a majority.
_ONE_SIDED = 0.15
# What the manifest counts of each split.
_COUNTS = ("documents", "examples", "tokens", "label_1")


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
        build_folder = BuildFolder(folder, _describe(tokenizer, settings))
        if manifest := build_folder.prepare(paths, overwrite):
            print(f"'{folder}' is complete already: {_counts(manifest)}")
            return manifest
        with runners.RUNNERS[runner](Worker(settings, tokenizer, build_folder.parts), workers) as run:
            deal = Deal.of(settings, text_bytes)
            piece_bytes = _piece_bytes(settings, deal)
            pieces = sections.plan_pieces(paths, piece_bytes)
            return _Build(build_folder, deal, pieces, piece_bytes, settings, run, max_bad_lines).finish(tokenizer)


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


class _UselessError(UserError):
    """Another corpus or other settings are needed, for which the parts are useless."""


@dataclass(frozen=True)
class _Build:
    folder: BuildFolder
    deal: Deal
    pieces: list[list[sections.Section]]
    piece_bytes: int
    settings: BuildSettings
    run: runners.Run
    max_bad_lines: int

    def finish(self, tokenizer: Tokenizer) -> dict[str, Any]:
        start = time.monotonic()
        folder, parts = self.folder.folder, self.folder.parts
        try:
            read = self._read(parts)
            manifest, text_bytes = self._build(read, parts, tokenizer)
        except _UselessError:
            parts.remove()
            raise
        except OSError as error:
            raise UserError(
                f"'{folder}' is unfinished: {error.strerror or error}; fix that, and the same command goes on where "
                "this one stopped"
            ) from error
        seconds = time.monotonic() - start
        print(f"'{folder}' holds {_counts(manifest)}, from {text_bytes / 1e6:,.1f} MB of text in {seconds:,.1f} s")
        _warn_of_encoding(read)
        _warn_of_one_sided_labels(manifest)
        return manifest

    def _read(self, parts: Parts) -> list[dict[str, Any]]:
        # Nobody waits for spill files to be on the disk: after a power cut they are written anew.
        boot, names = _boot_id(), [f"piece-{number:06d}" for number in range(len(self.pieces))]
        done = {number: report for number, name in enumerate(names) if (report := parts.done(name))}
        done = {number: report for number, report in done.items() if report["boot"] == boot}
        tasks = [
            (number, "read_piece", (self.deal, name, piece, self.piece_bytes, boot, self.max_bad_lines))
            for number, (name, piece) in enumerate(zip(names, self.pieces))
            if number not in done
        ]
        with progress_bar(total=len(tasks), desc="reading", unit=" pieces", disable=len(tasks) < 2) as bar:
            for number, report in self.run(tasks):
                done[number] = report
                bar.update()
        read = [done[number] for number in range(len(names))]
        if len(bad_lines := _bad_lines(read)) > self.max_bad_lines:
            raise too_many(bad_lines, self.max_bad_lines)
        documents, held_out = (sum(report[key] for report in read) for key in ("documents", "held_out"))
        _check_documents(documents, held_out, self.settings)
        return read

    def _build(self, read: list[dict[str, Any]], parts: Parts, tokenizer: Tokenizer) -> tuple[dict[str, Any], int]:
        names = [f"shard-{shard:06d}" for shard in range(self.deal.shards)]
        done = {shard: report for shard, name in enumerate(names) if (report := parts.done(name))}
        spills = [parts.file(name) for report in read for name in report["files"]]
        shards = [(shard, "build", (name, shard, spills)) for shard, name in enumerate(names) if shard not in done]
        # A file is hashed as a whole, by the process that gets its beginning.
        begun = [[section.path for section in piece if not section.start] for piece in self.pieces]
        digests = [(-1 - number, "digest", (paths,)) for number, paths in enumerate(begun)]
        total = sum(report["text_bytes"] for report in read) * len(shards) // len(names)
        with progress_bar(total=total, desc="building", unit="B", unit_scale=True) as bar:
            start, text_bytes, examples = time.monotonic(), 0, 0
            for task, report in self.run(digests + shards, small=len(shards) < 3 and total < _SMALL_TEXT):
                done[task] = report
                text_bytes += report.get("text_bytes", 0)
                examples += report.get("examples", 0)
                seconds = time.monotonic() - start
                bar.set_postfix_str(f"{text_bytes / 1e6 / seconds:.1f} MB text/s, {examples / seconds:,.0f} examples/s")
                bar.update(report.get("text_bytes", 0))
        reports = [done[shard] for shard in range(len(names))]
        inputs = [row for number in range(len(digests)) for row in done[-1 - number]["inputs"]]
        return self._publish(reports, inputs, _bad_lines(read), tokenizer), sum(one["text_bytes"] for one in reports)

    def _publish(self, reports: list[dict], inputs: list[str], bad_lines: list[str], tokenizer: Tokenizer) -> dict:
        train = self.deal.train
        splits, parts = {}, {}
        for split, of_split in zip(SPLITS, (reports[:train], reports[train:])):
            filled = [report for report in of_split if report["examples"]]
            listed = []
            for number, report in enumerate(filled):
                (part,) = report["files"]
                name = parts[part] = f"{split}-{number:05d}-of-{len(filled):05d}.{part.partition('.')[2]}"
                listed.append({"name": name} | {key: value for key, value in report.items() if key != "files"})
            counts = {key: sum(report[key] for report in of_split) for key in _COUNTS}
            splits[split] = counts | {"files": listed}
        _check_examples(splits, self.settings)
        tokenizer.save(self.folder.folder)
        return self.folder.publish({"splits": splits}, parts, inputs, bad_lines)


def _bad_lines(read: list[dict[str, Any]]) -> list[str]:
    return [line for report in read for line in report["bad_lines"]]


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text() if path.exists() else ""


_OTHER_SHARE = "add documents (a blank line parts them in plain text), or set --held_out_fraction=0"


def _check_documents(documents: int, held_out: int, settings: BuildSettings) -> None:
    if not documents:
        least = settings.min_sentences
        raise _UselessError(
            f"the corpus holds no document of {least} sentences; check --input, add --split_sentences where a line is "
            f"a paragraph, or lower --min_sentences={least}"
            if least > 1
            else "the corpus holds no document; check --input"
        )
    if held_out == documents:
        raise _UselessError(
            f"all {documents} documents of the corpus are held out, none is left to train: lower --held_out_fraction, "
            f"{_OTHER_SHARE}"
        )
    if settings.held_out_fraction and not held_out:
        raise _UselessError(
            f"of the {documents} documents of the corpus none is held out: raise --held_out_fraction, {_OTHER_SHARE}"
        )


def _check_examples(splits: dict[str, Any], settings: BuildSettings) -> None:
    train, held_out = (splits[split] for split in SPLITS)
    documents = train["documents"] + held_out["documents"]
    hint = "documents need two sentences for a pair: a line each, or --split_sentences; or set --pair_task=none"
    if settings.objective == "permutation":
        hint = (
            "a stream needs more tokens than --max_seq_length, and a file as many streams as --streams: give more text"
        )
    if not train["examples"]:
        raise _UselessError(f"the {documents} documents of the corpus give no training example: {hint}")
    if settings.held_out_fraction and not held_out["examples"]:
        raise _UselessError(
            f"the {held_out['documents']} of {documents} documents held out give no example: raise "
            f"--held_out_fraction, {_OTHER_SHARE}"
        )


def _warn_of_encoding(read: list[dict[str, Any]]) -> None:
    counts = Counter[str]()
    for report in read:
        counts.update(report["not_utf8"])
    for path, count in sorted(counts.items()):
        print(f"warning: {corpus.describe_not_utf8(path, count)}")


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


def _counts(manifest: dict[str, Any]) -> str:
    splits = manifest["splits"]
    return " and ".join(
        f"{splits[name]['examples']:,} {name} examples of {splits[name]['documents']:,} documents" for name in SPLITS
    )
