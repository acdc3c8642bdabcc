"""Reads and writes the manifest of a folder of records, and checks files and held-out records by it."""

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.files import matches, patterns_of
from tfrecords.base.parts import PARTS

MANIFEST = "manifest.json"
FORMAT_VERSION = 3
SPLITS = ("train", "eval")
# The table of a build's corpus files: digest, bytes, name.
_INPUTS = "inputs.tsv"
# Two builds hold out the same documents if these are equal.
_DECISIVE = ("seed", "text_field", "split_sentences", "line_documents")
_CALLED = {"train": "training", "eval": "held-out"}


def find_records(patterns: str | os.PathLike | Iterable[str], split: str) -> list[Path]:
    """Finds the record files of comma-separated globs or folders, sorted.

    Returns the files of `split` by the manifests beside them; if no matching file is of `split`, all matches. Raises
    UserError if nothing matches, or a folder has none of `split`.
    """
    patterns = patterns_of(patterns)
    for folder in filter(Path.is_dir, map(Path, patterns)):
        if not _names(folder, split):
            raise UserError(f"'{folder}' holds no {split} records; build it with another --held_out_fraction")
    paths = sorted({path for pattern in patterns for path in _matches(pattern)})
    paths = [path for path in paths if path.name != MANIFEST and not path.name.startswith(".")]
    if not paths:
        raise UserError("no record files given; name them, for example 'data/*.tfrecord*'")
    of_split = {folder: _names(folder, split) for folder in {path.parent for path in paths}}
    return [path for path in paths if path.name in of_split[path.parent]] or paths


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern)
    pattern = str(path / "*.tfrecord*") if path.is_dir() else pattern
    found = [Path(name) for name in matches(pattern)]
    if not found:
        raise UserError(f"'{pattern}' matches no record file; build some: python -m tfrecords.create_pretraining_data")
    return found


def check_files(paths: list[Path], split: str) -> list[int]:
    """Checks record files against their manifests; returns the number of examples in each.

    Raises UserError for a missing or changed file.
    """
    counts = {}
    for folder in {path.parent for path in paths}:
        manifest = read_folder(folder)
        if lost := missing_file(folder, manifest["splits"][split]["files"]):
            raise UserError(f"'{folder / lost}' is missing, cut off or changed; copy it again or build the folder anew")
        counts |= {folder / file["name"]: file["examples"] for file in listed_files(manifest)}
    if unknown := [path for path in paths if path not in counts]:
        raise UserError(f"'{unknown[0]}' is not in the manifest beside it; read another build from its own folder")
    return [counts[path] for path in paths]


def missing_file(folder: Path, listed: list[dict[str, Any]]) -> str:
    """Returns the first of a manifest's files that is missing or has another size, or ""."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    return next((file["name"] for file in listed if sizes.get(file["name"]) != file["bytes"]), "")


def listed_files(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the manifest's entries of record files, of all splits."""
    return [file for split in manifest["splits"].values() for file in split["files"]]


def _names(folder: Path, split: str) -> set[str]:
    return {file["name"] for file in read_folder(folder)["splits"][split]["files"]}


def read_manifest(patterns_or_dir: str | os.PathLike | Iterable[str]) -> dict[str, Any]:
    """Reads the manifest next to the record files of a folder or globs.

    Raises UserError if there is none, or several folders were built differently.
    """
    folders = set()
    for pattern in patterns_of(patterns_or_dir):
        path = Path(pattern)
        folders |= {path} if path.is_dir() else {match.parent for match in _matches(pattern)}
    manifests = [read_folder(folder) for folder in sorted(folders)]
    first = manifests[0]
    for folder, manifest in zip(sorted(folders), manifests):
        for key in _SAME + (_MASKS if first.get("masking") == "dynamic" else ()):
            if manifest.get(key) != first.get(key):
                raise UserError(
                    f"'{folder}' has {key} {manifest.get(key)!r} but '{sorted(folders)[0]}' has "
                    f"{first.get(key)!r}; read them apart"
                )
    return first


_SAME = (
    "max_seq_length",
    "max_predictions_per_seq",
    "vocab_size",
    "tokenizer_sha256",
    "masking",
    "pair_task",
    # Of permutation records.
    "objective",
    "reuse_length",
    "streams",
)
# Entries that the reader's masks depend on.
_MASKS = ("masked_lm_prob", "max_ngram", "whole_words")


def read_folder(folder: Path) -> dict[str, Any]:
    """Reads a folder's manifest; raises UserError if it is missing or no manifest."""
    if not (folder / MANIFEST).exists():
        parts = folder / PARTS
        fix = "its build was interrupted; run it again" if parts.exists() else "build it anew"
        raise UserError(f"'{folder}' has no {MANIFEST}; {fix}: python -m tfrecords.create_pretraining_data")
    manifest = files.read_json(folder / MANIFEST)
    try:
        splits = [manifest["splits"][split] for split in SPLITS]
        whole = all(isinstance(split[key], int) for split in splits for key in ("documents", "examples"))
        listed = [file for split in splits for file in split["files"]]
        whole &= all("name" in file and isinstance(file[key], int) for file in listed for key in ("examples", "bytes"))
        whole &= all(isinstance(manifest.get(key, 0), int) for key in _SAME[:3]) and isinstance(manifest["pad_id"], int)
        whole &= manifest["masking"] != "dynamic" or manifest.keys() >= set(_MASKS)
    except (TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"'{folder / MANIFEST}' is not a manifest of records; remove it and build the folder anew")
    files.check_format(f"'{folder / MANIFEST}'", manifest, FORMAT_VERSION)
    for file in itertools.chain(*(split["files"] for split in splits)):
        files.inside(folder, file["name"], folder / MANIFEST)
    return manifest


def check_held_out(train_data: Sequence[str], eval_data: Sequence[str]) -> None:
    """Raises UserError if most held-out documents are training documents too, and warns if some are.

    The arguments are patterns of record files.

    Raises:
        UserError: also for files of the other split.
    """
    folders = {}
    for split, patterns in (("train", train_data), ("eval", eval_data)):
        paths = sorted({path for pattern in patterns for path in find_records(pattern, split)})
        built = {path.parent for path in paths}
        (other,) = _CALLED.keys() - {split}
        others = {folder / file["name"] for folder in built for file in read_folder(folder)["splits"][other]["files"]}
        if wrong := [path for path in paths if path in others]:
            raise UserError(
                f"'{wrong[0]}' holds {_CALLED[other]} records, but is given as {_CALLED[split]} data; name others"
            )
        folders[split] = sorted({folder.resolve() for folder in built})
    for train, held_out in itertools.product(folders["train"], folders["eval"]):
        share, key = _shared(train, held_out)
        said = (
            f"about {share:.0%} of the held-out documents of '{held_out}' are training documents of '{train}', which "
            f"was built from the same text with another {key}; build both with the same"
        )
        if share > 0.5:
            raise UserError(said)
        if share:
            print(f"warning: {said}")


def _shared(train: Path, held_out: Path) -> tuple[float, str]:
    """Returns the share of held-out documents that are in training, and the setting that makes the difference."""
    read, manifests = [_inputs(folder) for folder in (train, held_out)], [read_folder(train), read_folder(held_out)]
    common = sum(size for digest, size in read[1].items() if digest in read[0])
    of_train, of_held_out = (manifest.get("held_out_fraction", 0.0) for manifest in manifests)
    if not common or not of_held_out:
        return 0.0, ""
    key = next((key for key in _DECISIVE if manifests[0].get(key) != manifests[1].get(key)), "held_out_fraction")
    # A document is held out if a number drawn by its text and the seed is below the fraction.
    share = max(0.0, 1 - of_train / of_held_out) if key == "held_out_fraction" else 1 - of_train
    return share * common / sum(read[1].values()), key


def _inputs(folder: Path) -> dict[str, int]:
    path = folder / _INPUTS
    rows = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return {digest: int(size) for digest, size, _ in (row.split("\t", 2) for row in rows)}
