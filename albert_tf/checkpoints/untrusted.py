"""Checks of Keras files before Keras reads them."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import keras

from tfrecords.base.errors import UserError
from tfrecords.base.files import MAX_BYTES, parse_json

# What Keras writes; with another one it would unpack all of them into a folder.
_MEMBERS = ("metadata.json", "config.json", "model.weights.h5")
# Of modules of Keras: those whose objects read no file and run nothing of others.
_PLAIN = ("optimizers", "losses", "metrics", "initializers", "regularizers", "constraints", "activations")
_MODULES = ("albert_tf", "keras_hub", "keras.dtype_policies", *(f"keras.{name}" for name in _PLAIN))
_OF_KERAS = ("DTypePolicy", "DTypePolicyMap", "FloatDTypePolicy", "QuantizedDTypePolicy", "Variable")
# Values that JSON has no form for.
_VALUES = ("__tuple__", "__numpy__", "__tensor__", "__bytes__", "__ellipsis__", "__slice__")
# Keras compresses nothing, other programs may; weights hardly shrink.
_MOST_UNPACKED = 10
_SLACK = 2**20
# 1 GiB of float32.
_MANY = 2**28


def check_keras_file(path: Path) -> None:
    """Raises UserError for a .keras file that has unknown classes or members, or unpacks to far more than its size."""
    with zipfile.ZipFile(path) as archive:
        check_unpacked(archive, path)
        if others := sorted(set(archive.namelist()) - set(_MEMBERS)):
            raise UserError(f"'{path}' holds '{others[0]}'; a .keras file has {', '.join(_MEMBERS)} alone")
        if archive.getinfo("config.json").file_size > MAX_BYTES:
            raise UserError(f"the config.json in '{path}' has more than {MAX_BYTES:,} bytes; copy or download it again")
        values = parse_json(archive.read("config.json"), path)
        if not str(values.get("module")).startswith("albert_tf."):
            raise UserError(f"'{path}' holds a {values.get('class_name')}, which is no model of this package")
        check_classes(values, path)
        for config in json_objects(values):
            check_claims(config, path.stat().st_size, path)
        check_hdf5(io.BytesIO(archive.read("model.weights.h5")), path)


def check_unpacked(archive: zipfile.ZipFile, path: Path) -> None:
    """Raises UserError for an archive that unpacks to far more than its size."""
    _check_size(sum(member.file_size for member in archive.infolist()), path, path.stat().st_size)


def check_classes(values: Any, path: str | os.PathLike) -> None:
    """Raises UserError for a configuration that names a class neither known to be safe nor registered with Keras."""
    for value in json_objects(values):
        if "class_name" in value and not _is_known(value):
            named = f"{value.get('module')}.{value['class_name']}"
            raise UserError(
                f"'{path}' names {named}, which is no class of this library or of Keras's optimizers, losses and"
                " metrics; such a file could run any program and is not loaded"
            )


def json_objects(values: Any) -> Iterator[dict[str, Any]]:
    """Yields all objects of a JSON value, nested ones too."""
    left = [values]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _is_known(value: dict[str, Any]) -> bool:
    name, module, registered = (str(value.get(key) or "") for key in ("class_name", "module", "registered_name"))
    if name in _VALUES:
        return True
    own = str(value.get("config")) if name == "function" else registered
    if keras.saving.get_registered_object(own) is not None:
        return True
    is_plain = any(module == one or module.startswith(f"{one}.") for one in _MODULES)
    return (is_plain or (module == "keras" and name in _OF_KERAS)) and not name.startswith("__")


def check_hdf5(file: BinaryIO | Path, path: Path) -> None:
    """Raises UserError for an HDF5 file that refers to other files or claims arrays far larger than itself."""
    size = file.stat().st_size if isinstance(file, Path) else len(file.getbuffer())  # type: ignore[attr-defined]
    total, seen = 0, set()
    with h5py.File(file, "r") as opened:
        left = [opened]
        while left:
            group = left.pop()
            if (place := h5py.h5o.get_info(group.id).addr) in seen:
                continue
            seen.add(place)
            for name in group:
                link, item = group.get(name, getlink=True), None
                if isinstance(link, h5py.HardLink):
                    item = group[name]
                if item is None or (isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)):
                    raise UserError(f"'{path}' refers to data elsewhere by '{name}'; such a file is not loaded")
                if isinstance(item, h5py.Group):
                    left.append(item)
                elif isinstance(item, h5py.Dataset):
                    total += item.size * item.dtype.itemsize
    _check_size(total, path, size)


def _check_size(unpacked: int, path: Path, size: int) -> None:
    if unpacked > _MOST_UNPACKED * size + _SLACK:
        raise UserError(
            f"'{path}' has {size:,} bytes and would unpack to {unpacked:,}; copy or download it again if it is no trap"
        )


def check_claims(config: Mapping[str, Any], numbers: int, path: str | os.PathLike) -> None:
    """Raises UserError if a configuration has far more weights than the checkpoint, which has `numbers`."""
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    hidden = sizes.get("hidden_size", 0)
    has_table = config.get("position_type", "absolute") == "absolute"
    rows = sum(sizes.get(key, 0) for key in ("vocab_size", "type_vocab_size", *["max_position_embeddings"] * has_table))
    blocks = "num_hidden_layers" if config.get("sharing") == "none" else "num_hidden_groups"
    count = sizes.get(blocks, 1) * sizes.get("inner_group_num", 1)
    asked = rows * sizes.get("embedding_size", hidden) + count * hidden * (hidden + sizes.get("intermediate_size", 0))
    if asked > _MANY and asked > _MOST_UNPACKED * numbers:
        raise UserError(f"'{path}': its configuration asks for {asked:,} weights and more, its files hold {numbers:,}")
