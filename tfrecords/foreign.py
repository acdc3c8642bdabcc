"""Makes a manifest for record files of another program by reading them."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecords.base.errors import UserError

_WIDTHS = {
    "max_seq_length": ("input_ids", "input_mask", "segment_ids"),
    "max_predictions_per_seq": ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
}


def describe_foreign(paths: list[Path]) -> dict[str, Any]:
    """Returns a manifest: masking "static", feature lengths, and each file's number of examples.

    Raises UserError unless the files hold static examples of equal lengths with google-research/albert's features.
    """
    records = {path: features for path in paths if (features := _first_record(path)) is not None}
    if not records:
        raise UserError(f"'{paths[0]}' holds no record; build the records anew")
    description: dict[str, Any] = {"masking": "static"}
    for key, names in _WIDTHS.items():
        widths = {path: _width(path, features, names) for path, features in records.items()}
        first, last = min(widths, key=widths.get), max(widths, key=widths.get)
        if widths[first] != widths[last]:
            raise UserError(f"'{first}' has {key} {widths[first]} but '{last}' has {widths[last]}; read them apart")
        description[key] = widths[first]
    files = [{"name": path.name, "examples": _count_records(path), "bytes": path.stat().st_size} for path in paths]
    return description | {"splits": {"train": {"files": files, "examples": sum(file["examples"] for file in files)}}}


def _values(feature: tf.train.Feature) -> Any:
    return feature.float_list.value or feature.int64_list.value


def _width(path: Path, features: Any, names: tuple[str, ...]) -> int:
    widths = {len(_values(features[name])) if name in features else 0 for name in names}
    if len(widths) > 1 or 0 in widths:
        raise UserError(
            f"'{path}' holds no pre-training examples: they have {', '.join(names)} of one length; "
            "build some with python -m tfrecords.create_pretraining_data"
        )
    return widths.pop()


def _first_record(path: Path) -> Any:
    try:
        for record in _records(path).take(1):
            return tf.train.Example.FromString(record.numpy()).features.feature
    except Exception as error:  # tf.errors.* and protobuf's own
        raise UserError(f"'{path}' is not a TFRecord file of tf.train.Example; check the name") from error
    return None


def _records(path: Path) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(str(path), "GZIP" if path.suffix == ".gz" else "")


def _count_records(path: Path) -> int:
    try:
        return int(_records(path).reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.OpError as error:
        raise UserError(f"'{path}' is cut off or damaged; copy it again or build it anew") from error
