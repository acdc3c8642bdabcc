"""Checks the data of `fit`, `evaluate` and `predict`: what no model can read is refused before the first step."""

from typing import Any

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.features import by_name
from albert_tf.layers.lookup import check_range, known
from albert_tf.layers.step_errors import NO_TEXTS, is_text
from tfrecords.base.errors import UserError

_TO_NUMBERS = "give numbers from 0, such as np.array([names.index(label) for label in labels])"


def check_data(config: AlbertConfig, features: Any, labels: Any = None) -> None:
    """Raises UserError where data is of a kind that the models cannot read, or holds an id that is out of range.

    Of a tf.data.Dataset the kinds are known. What generators and datasets hold is known only when they are read.

    Args:
        config: of the encoder.
        features: the first argument of `fit`.
        labels: the second.
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
        raise UserError(_of_list(features))
    for name, values in features.items() if isinstance(features, dict) else [("input_ids", features)]:
        _check_kind(values, name, NO_TEXTS)
    several = isinstance(labels, (list, tuple)) and any(_is_array(values) for values in labels)
    for values in labels.values() if isinstance(labels, dict) else labels if several else [labels]:
        _check_kind(values, "labels", f"strings are not read; {_TO_NUMBERS}")
    if spec is None:
        _check_ranges(config, by_name(features))


def check_classes(labels: Any, classes: int, sample_weight: Any = None) -> None:
    """Raises UserError where a label that has weight is no class."""
    values, weights = known(labels), known(sample_weight)
    if values is None or values.dtype.kind not in "iuf" or not values.size:
        return
    if weights is not None and weights.shape == values.shape[: weights.ndim]:
        values = values[weights > 0]
    check_range(values, classes, "labels")


def _check_kind(values: Any, name: str, no_strings: str) -> None:
    dtype = str(getattr(values, "dtype", ""))
    is_text = isinstance(values, (list, tuple)) and values and isinstance(values[0], str)
    if is_text or "string" in dtype or dtype.startswith(("<U", "|S", "object")):
        raise UserError(f"{name}: {no_strings}")
    if isinstance(values, (list, tuple)):
        raise UserError(f"{name}: a {_kind(values)} is not read; give an array, rows filled up to one length")
    if "Ragged" in type(values).__name__:
        raise UserError(
            f"{name}: a RaggedTensor is not read; give {name}.to_tensor(), and as input_mask"
            " tf.ones_like(input_ids).to_tensor()"
        )


def _of_list(features: Any) -> str:
    if any(_is_array(values) and len(values.shape) > 1 for values in features):
        return (
            f"features: a {_kind(features)} of {len(features)} arrays is not read; name them, such as"
            " {'input_ids': ids, 'input_mask': mask}"
        )
    return (
        f"features: a {_kind(features)} is not read; give an array of ids, rows filled up to one length, or a dict of"
        " such arrays"
    )


def _kind(values: Any) -> str:
    return type(values).__name__


def _is_array(values: Any) -> bool:
    return hasattr(values, "shape") and hasattr(values, "dtype")


def _check_ranges(config: AlbertConfig, features: dict[str, Tensor]) -> None:
    length, offset = features["input_ids"].shape[-1], config.position_offset
    for name, (least, most) in _ranges(config, length, offset).items():
        if name in features:
            if "float" in str(features[name].dtype):
                raise UserError(f"{name}: {features[name].dtype} is not read; give whole numbers, such as int32")
            check_range(features[name], most, name, least)


def _ranges(config: AlbertConfig, length: int, offset: int) -> dict[str, tuple[int, int]]:
    """The least, and what every value is below."""
    ranges = {"input_ids": (0, config.vocab_size), "masked_lm_ids": (0, config.vocab_size)}
    ranges["next_sentence_labels"] = (0, 2)
    places = ("masked_lm_positions", "query_positions", "sequence_starts", "start_positions", "end_positions")
    ranges |= dict.fromkeys(places, (0, length))
    if config.spec.has_types and config.type_vocab_size > 1:
        ranges["segment_ids"] = (0, config.type_vocab_size)
    if config.spec.has_positions:
        ranges["position_ids"] = (-offset, config.max_position_embeddings - offset)
    return ranges
