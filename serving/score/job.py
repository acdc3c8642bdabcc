"""A scoring job: answers the input piece by piece, and joins the answers to a table per file.

The same command resumes an interrupted job and writes the same bytes.
"""

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from serving.client.tasks import COUNTS
from serving.score.folder import (
    BAD_ROWS,
    JOB,
    MANIFEST,
    PARTS,
    Record,
    check_targets,
    part_path,
    read_records,
    remove_answers,
    table_names,
)
from serving.score.models import ModelSource, fingerprint, is_same, other_model, served_version, version_folder
from serving.score.rows import Piece, check_fields, cut, find_files
from serving.score.tables import BAD_SUFFIX, FORMATS, check_format, read_bad
from serving.score.worker import ScoringWorker
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar
from tfrecords.runners import RUNNERS, Run

PIECE_BYTES = 2**19
_FORMAT_VERSION = 3


def score(
    patterns: str,
    output_dir: str | os.PathLike,
    source: ModelSource,
    *,
    fields: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
    format: str = "jsonl",
    max_batch_tokens: int = 2048,
    workers: int = 1,
    runner: str = "local",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Runs a model on the rows of files, and writes a table of answers for each file.

    Args:
        patterns: comma-separated globs of .jsonl or plain text, a row per line.
        output_dir: for tables, manifest and the list of bad rows.
        source: the model.
        fields: JSON fields, one for each of the model's inputs; (): named like the inputs.
        outputs: outputs to write; (): the task's defaults.
        keep: fields of JSON rows to copy.
        format: "jsonl" or "parquet".
        max_batch_tokens: estimated tokens per batch.
        workers: processes, each with the model.
        runner: "local" or "ray".
        overwrite: removes another job's answers.

    Returns:
        The manifest: `rows` and `bad_rows` (counts), `tables` (names by input file), the model and the request.

    Raises:
        UserError: the input is bad, the folder has another job's answers, or the model does not fit.
    """
    paths = find_files(patterns)
    names = table_names(paths, FORMATS[format].suffix)
    check_format(format)
    folder = files.make_output_dir(output_dir)
    with files.locked(folder):
        files.remove_unfinished(folder)
        finished, begun = read_records(folder)
        records = [record for record in (finished, begun) if record]
        check_targets(folder, names, paths, records)
        source = _settled(source, None if overwrite else begun)
        worker = ScoringWorker(source, fields, outputs, keep, format, max_batch_tokens, folder / PARTS)
        job = _described(paths, worker)
        described = worker.describe() if source.target else {"sample": {}}
        others = [
            record for record in records if record["job"] != job or not is_same(record["sample"], described["sample"])
        ]
        if others and not overwrite:
            if others[0]["job"] == job:
                raise other_model(source)
            other = next(name for name in job if others[0]["job"].get(name) != job[name])
            raise UserError(
                f"'{folder}' holds answers of another job (its {other} was another); give another --output_dir, "
                "or --overwrite"
            )
        if finished and not others and all((folder / name).exists() for name in names.values()):
            shutil.rmtree(folder / PARTS, ignore_errors=True)
            print(f"'{folder}' is complete already: {_counts(finished)}")
            return finished
        pieces = cut(paths, PIECE_BYTES)
        with RUNNERS[runner](worker, workers) as run:
            if not source.target:
                (_, described), *_ = run([(0, "describe", ())], small=True)
            check_fields(pieces, fields or described["inputs"])
            for record in others:
                remove_answers(folder, record)
            _make_ready(folder / PARTS, {"job": job, "tables": names, "sample": described["sample"]})
            begin = time.monotonic()
            reports, new = _answer(folder / PARTS, pieces, described, run)
        table = FORMATS[format](described["outputs"], keep)
        manifest = _assemble(folder, job, described["sample"], names, pieces, reports, table)
        seconds = time.monotonic() - begin
        print(f"'{folder}' holds {_counts(manifest)}; {new:,} rows in {seconds:,.1f} s, {new / seconds:,.1f} rows/s")
        print(_truncation(manifest))
        return manifest


def _settled(source: ModelSource, begun: Record | None) -> ModelSource:
    if not source.target:
        return dataclasses.replace(source, model=str(version_folder(source.model)))
    began_with = begun["job"]["model"].get("version") if begun else None
    version = source.version or began_with or served_version(source)
    return dataclasses.replace(source, version=version, has_begun=version == began_with)


def _described(paths: list[Path], worker: ScoringWorker) -> dict[str, Any]:
    source = worker.source
    named = {"name": source.model, "version": source.version}
    return {
        "format_version": _FORMAT_VERSION,
        "model": named if source.target else fingerprint(Path(source.model)),
        "signature": source.signature,
        **({"options": dict(source.options)} if source.options else {}),
        "fields": list(worker.fields),
        "outputs": list(worker.outputs),
        "keep": list(worker.keep),
        "format": worker.format,
        "max_batch_tokens": worker.max_batch_tokens,
        "piece_bytes": PIECE_BYTES,
        "inputs": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths],
    }


def _make_ready(parts: Path, record: Record) -> None:
    parts.mkdir(exist_ok=True)
    files.remove_unfinished(parts)
    files.write_json(parts / JOB, record)


def _answer(parts: Path, pieces: list[Piece], described: dict[str, Any], run: Run) -> tuple[list[dict], int]:
    reports = {number: report for number in range(len(pieces)) if (report := _report(parts, number))}
    asked = tuple(described["inputs"]), described["outputs"], described["sample"]
    tasks = [(n, "score", (n, piece, *asked)) for n, piece in enumerate(pieces) if n not in reports]
    begin, new = time.monotonic(), 0
    total = sum(pieces[n].end - pieces[n].start for n, *_ in tasks)
    with progress_bar(total=total, desc="scoring", unit="B", unit_scale=True) as bar:
        for number, report in run(tasks):
            reports[number] = report
            new += report["rows"]
            bar.set_postfix_str(f"{new / (time.monotonic() - begin):,.1f} rows/s")
            bar.update(pieces[number].end - pieces[number].start)
    return [reports[number] for number in range(len(pieces))], new


def _report(parts: Path, number: int) -> dict[str, int] | None:
    try:
        found = files.read_json(part_path(parts, number, ".json"))
    except UserError:
        return None
    is_whole = isinstance(found, dict) and {"rows", "bad"} <= found.keys()
    return found if is_whole and all(isinstance(count, int) for count in found.values()) else None


def _assemble(
    folder: Path, job: dict, sample: dict, names: dict[str, str], pieces: list[Piece], reports: list[dict], table
) -> dict:
    parts = folder / PARTS
    for path, name in names.items():
        numbers = [number for number, piece in enumerate(pieces) if piece.path == path]
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        files.remove_unfinished(target.parent)
        with files.replacing(target) as temporary:
            joined = table.join([part_path(parts, number, table.suffix) for number in numbers], temporary)
            _check_whole(parts, {n: rows == reports[n]["rows"] for n, rows in zip(numbers, joined, strict=True)})
    with files.replacing(folder / BAD_ROWS) as temporary, open(temporary, "wb") as file:
        for rows in _bad_rows(parts, pieces, reports):
            file.write(msgspec.json.Encoder().encode_lines(rows))
    names_in_reports = {"rows": "rows", "bad_rows": "bad", "truncated_rows": "truncated", **dict(zip(COUNTS, COUNTS))}
    counts = {
        name: sum(report[of] for report in reports)
        for name, of in names_in_reports.items()
        # What is truncated is absent where the model does not tell.
        if all(of in report for report in reports)
    }
    manifest = {**counts, "tables": names, "job": job, "sample": sample}
    files.write_json(folder / MANIFEST, manifest)
    shutil.rmtree(parts)
    return manifest


def _bad_rows(parts: Path, pieces: list[Piece], reports: list[dict]) -> Iterator[list[dict[str, Any]]]:
    line, path = 0, None
    for number, (piece, report) in enumerate(zip(pieces, reports, strict=True)):
        line, path = (line if piece.path == path else 0), piece.path
        if report["bad"]:
            bad = read_bad(part_path(parts, number, BAD_SUFFIX))
            _check_whole(parts, {number: len(bad) == report["bad"]})
            yield [{"file": path, "line": line + place + 1, "error": error, "row": text} for place, error, text in bad]
        line += report["rows"]


def _check_whole(parts: Path, whole: dict[int, bool]) -> None:
    if broken := [number for number, is_whole in whole.items() if not is_whole]:
        for number in broken:
            part_path(parts, number, ".json").unlink()
        raise UserError(f"{len(broken)} parts in '{parts}' are damaged; run the same command again to make them anew")


def _truncation(manifest: dict[str, Any]) -> str:
    if "truncated_rows" not in manifest:
        return "this signature does not tell which texts were truncated"
    rows, tokens = manifest["rows"] - manifest["bad_rows"], manifest["text_tokens"]
    unknown = manifest.get("unknown_tokens")
    return (
        f"truncated: {manifest['truncated_rows'] / max(rows, 1):.1%} of the rows, "
        f"{manifest['truncated_tokens'] / max(tokens, 1):.1%} of their tokens were not read"
        + ("" if unknown is None else f"; unknown: {unknown / max(tokens, 1):.1%} of the tokens")
    )


def _counts(manifest: dict[str, Any]) -> str:
    bad = f", {manifest['bad_rows']:,} of them bad ({BAD_ROWS} lists them)" if manifest["bad_rows"] else ""
    return f"answers to {manifest['rows']:,} rows of {len(manifest['tables']):,} files{bad}"
