"""The whole build: streams chunks of the corpus to workers, shows progress, assembles the folder."""

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tfrecords import corpus, files, runners
from tfrecords.errors import UserError
from tfrecords.manifest import MANIFEST, PARTS, SPLITS, read_folder
from tfrecords.progress import progress_bar
from tfrecords.tokenizer import Tokenizer
from tfrecords.writer import BuildConfig, ChunkBuilder, part_path

_RUN = "run.json"
_FORMAT_VERSION = 1


def build(
    patterns: str,
    output_dir: str | os.PathLike,
    tokenizer: Tokenizer,
    config: BuildConfig,
    workers: int,
    overwrite: bool,
    runner: str = "local",
) -> dict[str, Any]:
    """Builds the records of a corpus and returns the manifest. A complete folder of the same build is left as it is;
    one that was interrupted is resumed.

    Raises UserError for bad input, for a folder that holds another build (unless `overwrite`), and for a corpus that
    gives no example in a split that should have some.
    """
    paths = corpus.find_files(patterns)
    folder = files.make_output_dir(output_dir)
    description = _describe(paths, tokenizer, config)
    standing = _standing_description(folder)
    if standing is not None and standing != description:
        _refuse_or_clear(folder, standing, description, overwrite)
    parts = folder / PARTS
    if (folder / MANIFEST).exists():
        manifest = read_folder(folder)
        if _is_whole(folder, manifest):
            shutil.rmtree(parts, ignore_errors=True)
            print(f"'{folder}' is complete already: {_counts(manifest)}")
            return manifest
        (folder / MANIFEST).unlink()
    parts.mkdir(exist_ok=True)
    files.write_json(parts / _RUN, description)
    start = time.monotonic()
    try:
        reports = _build_parts(paths, parts, tokenizer, config, workers, runner)
        tokenizer.save(folder)
        manifest = _assemble(folder, parts, description, reports, config)
    except UserError as error:
        # Another corpus or other settings are needed, and for them the parts are of no use; unless a disk just failed.
        if not isinstance(error.__cause__, OSError):
            shutil.rmtree(parts)
        raise
    except OSError as error:
        raise UserError(
            f"'{folder}' is unfinished: {error.strerror or error}; mend that, and the same command goes on where this "
            "one stopped"
        ) from error
    text_bytes = sum(report["text_bytes"] for report in reports)
    seconds = time.monotonic() - start
    print(f"'{folder}' holds {_counts(manifest)}, from {text_bytes / 1e6:,.1f} MB of text in {seconds:,.1f} s")
    return manifest


def _describe(paths: list[Path], tokenizer: Tokenizer, config: BuildConfig) -> dict[str, Any]:
    """The part of the manifest that is known before the work: equal descriptions, equal bytes."""
    settings = dataclasses.asdict(config)
    return {
        "format_version": _FORMAT_VERSION,
        **settings.pop("examples"),
        **settings,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_sha256": tokenizer.sha256,
        "pad_id": tokenizer.pad_id,
        "cls_id": tokenizer.cls_id,
        "sep_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
        "special_ids": tokenizer.special_ids.tolist(),
        "inputs": [
            {"name": path.name, "bytes": path.stat().st_size, "modified": path.stat().st_mtime_ns} for path in paths
        ],
    }


def _standing_description(folder: Path) -> dict[str, Any] | None:
    """The description of what is in the folder already, finished or not."""
    if (folder / MANIFEST).exists():
        manifest = read_folder(folder)
        return {key: value for key, value in manifest.items() if key != "splits"}
    if (folder / PARTS / _RUN).exists():
        return files.read_json(folder / PARTS / _RUN)
    return None


def _refuse_or_clear(folder: Path, standing: dict, wanted: dict, overwrite: bool) -> None:
    if not overwrite:
        name = next(key for key in wanted | standing if standing.get(key, ...) != wanted.get(key, ...))
        change = f"{name} {standing.get(name)!r}, now {wanted.get(name)!r}" if name != "inputs" else "another corpus"
        raise UserError(f"'{folder}' holds records built with {change}; give another --output_dir, or --overwrite")
    # The manifest first: without it nobody trusts the rest.
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for split in SPLITS:
        for path in folder.glob(f"{split}-*-of-*.tfrecord*"):
            path.unlink()


def _build_parts(
    paths: list[Path], parts: Path, tokenizer: Tokenizer, config: BuildConfig, workers: int, runner: str
) -> list[dict[str, Any]]:
    """Builds every chunk that has no part yet; returns all reports in the order of the corpus."""
    reports: dict[int, dict[str, Any]] = {}

    def unfinished(bar: tqdm) -> Iterator[tuple[int, corpus.Chunk]]:
        for number, chunk in enumerate(corpus.read_chunks(paths, config.chunk_bytes)):
            sizes[number] = chunk.size_on_disk
            if part_path(parts, number, "done.json").exists():
                reports[number] = files.read_json(part_path(parts, number, "done.json"))
                bar.update(chunk.size_on_disk)
            else:
                yield number, chunk
            del chunk

    sizes: dict[int, int] = {}
    builder = ChunkBuilder(config, tokenizer, parts)
    total = sum(path.stat().st_size for path in paths)
    with progress_bar(total=total, desc="building", unit="B", unit_scale=True) as bar:
        start = time.monotonic()
        text_bytes = examples = 0
        for number, report in runners.RUNNERS[runner](builder, unfinished(bar), workers):
            reports[number] = report
            text_bytes += report["text_bytes"]
            examples += sum(split["examples"] for split in report["splits"].values())
            seconds = time.monotonic() - start
            bar.set_postfix_str(f"{text_bytes / 1e6 / seconds:.1f} MB text/s, {examples / seconds:,.0f} examples/s")
            bar.update(sizes[number])
    return [reports[number] for number in sorted(reports)]


def _assemble(folder: Path, parts: Path, description: dict, reports: list[dict], config: BuildConfig) -> dict[str, Any]:
    """Gives the parts their final names and writes the manifest. Can be repeated after an interruption anywhere."""
    splits, part_of = {}, {}
    for split in SPLITS:
        of_split = [report["splits"][split] for report in reports]
        filled = [number for number, report in enumerate(of_split) if report["examples"]]
        shards = []
        for shard, number in enumerate(filled):
            name = f"{split}-{shard:05d}-of-{len(filled):05d}.tfrecord" + (".gz" if config.gzip else "")
            part_of[name] = part_path(parts, number, split)
            shards.append({"name": name, **{key: of_split[number][key] for key in ("examples", "bytes", "sha256")}})
        totals = {key: sum(report[key] for report in of_split) for key in ("documents", "examples", "tokens")}
        splits[split] = totals | {"files": shards}
    _check_filled(splits, config)
    for name, part in part_of.items():
        if part.exists():
            os.replace(part, folder / name)
    manifest = description | {"splits": splits}
    files.write_json(folder / MANIFEST, manifest)
    shutil.rmtree(parts)
    return manifest


def _is_whole(folder: Path, manifest: dict[str, Any]) -> bool:
    listed = [file for split in manifest["splits"].values() for file in split["files"]]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    return all(sizes.get(file["name"]) == file["bytes"] for file in listed)


def _check_filled(splits: dict[str, Any], config: BuildConfig) -> None:
    documents = sum(split["documents"] for split in splits.values())
    if not documents:
        raise UserError("the corpus holds no document; check --input")
    hint = "documents need two sentences for a pair: a line each, or --split_sentences; or set --pair_task=none"
    other_share = "add documents (a blank line parts them in plain text), or set --held_out_fraction=0"
    if not splits["train"]["documents"]:
        raise UserError(f"all {documents} documents of the corpus are held out, none is left to train: {other_share}")
    if not splits["train"]["examples"]:
        raise UserError(f"the {documents} documents of the corpus give no training example: {hint}")
    if config.held_out_fraction and not splits["eval"]["examples"]:
        raise UserError(
            f"the {splits['eval']['documents']} of {documents} documents held out give no example: raise "
            f"--held_out_fraction, {other_share}"
        )


def _counts(manifest: dict[str, Any]) -> str:
    counts = {name: manifest["splits"][name] for name in SPLITS}
    return " and ".join(
        f"{split['examples']:,} {name} examples of {split['documents']:,} documents" for name, split in counts.items()
    )
