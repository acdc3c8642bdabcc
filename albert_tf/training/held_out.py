"""Finds records of the wrong split, by the manifests beside them."""

from collections.abc import Sequence

from tfrecords.base.errors import UserError
from tfrecords.manifest import MANIFEST, find_records, read_folder

_CALLED = {"train": "training", "eval": "held-out"}


def check_held_out(train_data: Sequence[str], eval_data: Sequence[str]) -> None:
    """Raises UserError for held-out records among `train_data`, patterns of files, or training ones in `eval_data`."""
    for split, patterns in (("train", train_data), ("eval", eval_data)):
        (other,) = _CALLED.keys() - {split}
        for path in sorted({path for pattern in patterns for path in find_records(pattern, split)}):
            folder = path.parent
            others = read_folder(folder)["splits"][other]["files"] if (folder / MANIFEST).exists() else []
            # Of records that another program wrote, the names say it.
            if path.name in [file["name"] for file in others] or (not others and path.name.startswith(other)):
                raise UserError(
                    f"'{path}' holds {_CALLED[other]} records, but is given as {_CALLED[split]} data; name others"
                )
