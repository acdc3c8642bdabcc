"""Finds training data among held-out records, by the manifests beside them."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.reading.manifest import find_records, read_folder

# The table of a build's corpus files: digest, bytes, name.
_INPUTS = "inputs.tsv"
# Two builds hold out the same documents if these are equal.
_DECISIVE = ("seed", "text_field", "split_sentences", "line_documents")
_CALLED = {"train": "training", "eval": "held-out"}


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
