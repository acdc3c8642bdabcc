"""Weights by a rule that only the layout on disk decides, and the numbers that models are tried on."""

import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

LENGTH, LENGTHS = 9, np.array([9, 5, 2])
_random = np.random.default_rng(0)
MASK = (np.arange(LENGTH) < LENGTHS[:, None]).astype("int32")
IDS = _random.integers(5, 40, (3, LENGTH)).astype("int32") * MASK
SEGMENTS = (np.arange(LENGTH) > LENGTHS[:, None] // 2).astype("int32") * MASK
BATCH = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}
TARGETS = np.array([[1, 2], [0, 3], [1, 0]], "int32")
WORDS = {
    "masked_lm_positions": TARGETS,
    "masked_lm_ids": np.array([[7, 8], [9, 10], [11, 12]], "int32"),
    "masked_lm_weights": np.array([[1, 1], [1, 0.5], [1, 0]], "float32"),
    "next_sentence_labels": np.array([[0], [1], [1]], "int32"),
}
PERMUTED = {"perm_mask": _random.integers(0, 2, (3, LENGTH, LENGTH)).astype("int32")}
PACKED = {
    "input_ids": IDS,
    "input_mask": MASK,
    "sequence_ids": (np.arange(LENGTH) > 3).astype("int32") * MASK,
    "sequence_starts": np.array([[0, 4], [0, 4], [0, 0]], "int32"),
}
LABELS = np.array([0, 1, 1])


def memory_of(config) -> dict[str, np.ndarray]:
    """Returns what the rows before left, as a feature; {} of a configuration without memory."""
    if not config.memory_length:
        return {}
    shape = (config.num_steps, 3, 5, config.hidden_size)
    return {"memory": np.random.default_rng(2).normal(size=shape).astype("float32")}


def random_like(key: str, shape: tuple, scale: float = 0.3) -> np.ndarray:
    """Returns float32 values that `key` and the shape decide."""
    seed = zlib.crc32(f"{key} {tuple(shape)}".encode())
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype("float32")


def fill(model, scale: float = 0.3):
    """Gives a model weights that follow from their paths in its weights file; returns the model.

    What is the same number everywhere at first (scales, biases, gates) stays near that number.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.weights.h5"
        model.save_weights(path)
        with h5py.File(path, "r+") as file:
            for key, dataset in datasets(file).items():
                value = dataset[()]
                if value.dtype.kind == "f" and value.size:
                    flat = np.ravel(value)
                    first = flat[0] if (flat == flat[0]).all() and flat.size > 1 else 0.0
                    dataset[...] = (first + random_like(key, value.shape, scale)).astype(value.dtype)
        model.load_weights(path)
    return model


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Returns the arrays of a file by their paths in it, sorted."""
    found: dict[str, h5py.Dataset] = {}
    file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return dict(sorted(found.items()))


def numbers(value, name: str = "") -> dict[str, np.ndarray]:
    """Flattens tensors in dicts and lists to arrays by their paths; None and structures without a tensor are left."""
    import keras

    if value is None:
        return {name: np.array("None")}
    if isinstance(value, dict):
        return {key: found for part in sorted(value) for key, found in numbers(value[part], f"{name}/{part}").items()}
    if isinstance(value, list | tuple):
        return {key: found for i, part in enumerate(value) for key, found in numbers(part, f"{name}/{i}").items()}
    return {name.strip("/"): np.asarray(keras.ops.convert_to_numpy(value))}


def prefixed(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    """Returns values by their names below `prefix`."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


def short(path: str) -> str:
    """Returns a variable's path without its model's name, which counts how many models there were.

    The variables of an optimizer hold it in their own names, too.
    """
    return re.sub(r"^(albert_encoder)_\d+_", r"\1_", path.partition("/")[2] or path)


def weights_of(model) -> dict[str, np.ndarray]:
    """Returns all weights by their paths; equal paths are numbered."""
    import keras

    found: dict[str, np.ndarray] = {}
    for weight in model.weights:
        key = short(weight.path)
        key = key if key not in found else f"{key} ({len(found)})"
        found[key] = np.asarray(keras.ops.convert_to_numpy(weight))
    return found
