"""A scoring job: answers the input piece by piece, and joins the answers to a table per file.

The same command resumes an interrupted job and writes the same bytes.
"""

import dataclasses
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.score.models import ModelSource, fingerprint, is_same, other_model, served_version, version_folder
from serving.score.rows import Piece, as_lines, check_fields, cut, find_files
from serving.score.tables import JsonLines, Parquet
from serving.score.worker import ScoringWorker
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import PARTS, Parts
from tfrecords.base.script import progress_bar
from tfrecords.building.runners import RUNNERS, Run

PIECE_BYTES = 2**19
MANIFEST, BAD_ROWS = "manifest.json", "bad_rows.jsonl"
# Tables as lines, while the job runs.
_ROWS = ".rows"
Record = dict[str, Any]


def score(
    patterns: str,
    output_dir: str | os.PathLike,
    source: ModelSource,
    *,
    workers: int = 1,
    runner: str = "local",
    overwrite: bool = False,
    **request: Any,
) -> dict[str, Any]:
    """Runs a model on the rows of files, and writes a table of answers for each file.

    Args:
        patterns: comma-separated globs of tables, JSON lines, or plain text with a row per line.
        output_dir: for tables, manifest and the list of bad rows.
        source: the model.
        workers: processes, each with the model.
        runner: "local" or "ray".
        overwrite: removes another job's answers.
        **request: attributes of ScoringWorker.

    Returns:
        The manifest: `rows` and `bad_rows` (counts), `tables` (names by input file), the model and the request.

    Raises:
        UserError: the input is bad, the folder has another job's answers, or the model does not fit.
    """
    paths = find_files(patterns)
    worker = ScoringWorker(source, **request)
    names = table_names(paths, worker.table({}).suffix)
    folder = files.make_output_dir(output_dir)
    with files.locked(folder):
        files.remove_unfinished(folder)
        finished, begun = read_records(folder)
        records = [record for record in (finished, begun) if record]
        check_targets(folder, names, paths, records)
        source, parts = _settled(source, None if overwrite else begun), Parts(folder)
        worker = dataclasses.replace(worker, source=source, parts=parts)
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
            parts.remove()
            print(f"'{folder}' is complete already: {_counts(finished)}")
            return finished
        with as_lines(paths, folder / _ROWS) as lines, RUNNERS[runner](worker, workers) as run:
            if not source.target:
                (_, described), *_ = run([(0, "describe", ())], small=True)
            pieces = cut(lines, PIECE_BYTES, () if worker.fields else described["inputs"])
            check_fields(pieces, worker.fields or described["inputs"])
            for record in others:
                remove_answers(folder, record)
            record = {"job": job, "tables": names, "sample": described["sample"]}
            if begun and begun not in others:
                # The sample's numbers may differ a little.
                record = begun
            parts.claim(record)
            begin = time.monotonic()
            new = _answer(parts, pieces, described, run)
        manifest = _publish(parts, pieces, record, worker.table(described["outputs"]))
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
        "model": named if source.target else fingerprint(Path(source.model)),
        "signature": source.signature,
        **({"options": dict(source.options)} if source.options else {}),
        **{name: list(getattr(worker, name)) for name in ("fields", "outputs", "keep")},
        "format": worker.format,
        "max_batch_tokens": worker.max_batch_tokens,
        "piece_bytes": PIECE_BYTES,
        "inputs": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths],
    }


def _part(number: int) -> str:
    return f"{number:06d}"


def _answer(parts: Parts, pieces: list[Piece], described: dict[str, Any], run: Run) -> int:
    asked = tuple(described["inputs"]), described["outputs"], described["sample"]
    tasks = [(n, "score", (_part(n), piece, *asked)) for n, piece in enumerate(pieces) if not parts.done(_part(n))]
    begin, new = time.monotonic(), 0
    total = sum(pieces[n].end - pieces[n].start for n, *_ in tasks)
    with progress_bar(total=total, desc="scoring", unit="B", unit_scale=True) as bar:
        for number, rows in run(tasks):
            new += rows
            bar.set_postfix_str(f"{new / (time.monotonic() - begin):,.1f} rows/s")
            bar.update(pieces[number].end - pieces[number].start)
    return new


def _publish(parts: Parts, pieces: list[Piece], record: Record, table: JsonLines | Parquet) -> dict[str, Any]:
    counts: Counter = Counter()
    tables = {}
    with files.replacing(parts.file(BAD_ROWS)) as temporary, open(temporary, "wb") as bad_rows:
        for path, numbered in itertools.groupby(enumerate(pieces), lambda numbered: numbered[1].path):
            numbers, lines = [number for number, _ in numbered], 0
            for number in numbers:
                report = parts.done(_part(number))
                bad = [
                    {"file": path, "line": lines + place + 1, "error": error, "row": text}
                    for place, error, text in report["bad"]
                ]
                bad_rows.write(msgspec.json.Encoder().encode_lines(bad))
                counts.update({name: count for name, count in report.items() if isinstance(count, int)})
                lines += report["rows"]
            joined = f"table-{len(tables)}"
            with files.replacing(parts.file(joined)) as temporary_table:
                table.join([parts.file(f"{_part(number)}{table.suffix}") for number in numbers], temporary_table)
            name = tables[joined] = record["tables"][path]
            (parts.folder / name).parent.mkdir(parents=True, exist_ok=True)
    manifest = {**counts, **record}
    content = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    parts.publish(MANIFEST, content, {BAD_ROWS: BAD_ROWS, **tables})
    return manifest


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
