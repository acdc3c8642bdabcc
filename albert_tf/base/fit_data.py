"""Checks of the data for `fit`, `evaluate` and `predict`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from albert_tf.base.layers import check_range, known, plain
from albert_tf.base.model import NO_TEXTS, is_text
from tfrecords.base.errors import UserError

_TO_NUMBERS = "give numbers from 0, such as np.array([names.index(label) for label in labels])"


def check_data(features: Any, labels: Any, check_values: Callable[[Any], None]) -> None:
    """Raises UserError for features or labels of a type that the models cannot read.

    `check_values` checks the values of arrays.
    """
    if is_text(features):
        raise UserError(f"features: {NO_TEXTS}")
    spec = getattr(features, "element_spec", None)
    if spec is not None:
        features, labels, _ = keras.utils.unpack_x_y_sample_weight(spec)
    elif not isinstance(features, (dict, list, tuple)) and not _is_array(features):
        # A generator or a keras.utils.PyDataset.
        return
    if isinstance(features, (list, tuple)):
        raise UserError(
            f"features: a {type(features).__name__} is not read; give an array of ids, rows filled up to one length, or"
            " name arrays, such as {'input_ids': ids, 'input_mask': mask}"
        )
    for name, values in features.items() if isinstance(features, dict) else [("input_ids", features)]:
        _check_kind(values, name, NO_TEXTS)
    several = isinstance(labels, (list, tuple)) and any(_is_array(values) for values in labels)
    for values in labels.values() if isinstance(labels, dict) else labels if several else [labels]:
        _check_kind(values, "labels", f"strings are not read; {_TO_NUMBERS}")
    if spec is None:
        check_values(features)


def check_classes(labels: Any, classes: int, sample_weight: Any = None) -> None:
    """Raises UserError for a label of nonzero weight that is not a whole number from 0 to `classes` - 1."""
    values, weights = known(labels), known(sample_weight)
    if values is None or values.dtype.kind not in "iuf" or not values.size:
        return
    if weights is not None and weights.shape == values.shape[: weights.ndim]:
        values = values[weights > 0]
    check_range(values, classes, "labels")
    if values.dtype.kind == "f" and (between := values[values != np.floor(values)]).size:
        raise plain(UserError(f"labels: {between[0]} is no class; give whole numbers from 0 to {classes - 1}"))


def _check_kind(values: Any, name: str, no_strings: str) -> None:
    dtype = str(getattr(values, "dtype", ""))
    is_text = isinstance(values, (list, tuple)) and values and isinstance(values[0], str)
    if is_text or "string" in dtype or dtype.startswith(("<U", "|S", "object")):
        raise UserError(f"{name}: {no_strings}")
    if isinstance(values, (list, tuple)):
        raise UserError(f"{name}: a {type(values).__name__} is not read; give an array, rows filled up to one length")
    if "Ragged" in type(values).__name__:
        raise UserError(
            f"{name}: a RaggedTensor is not read; give {name}.to_tensor(), and as input_mask"
            " tf.ones_like(input_ids).to_tensor()"
        )


def _is_array(values: Any) -> bool:
    return hasattr(values, "shape") and hasattr(values, "dtype")
