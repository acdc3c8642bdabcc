"""Finds and downloads models of the Hugging Face hub."""

import fnmatch
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from albert_tf.config.reading import check_kind
from albert_tf.loading.model_files import MODEL_FILE, READ, SHARDS, detect, shards_of, unknown_names, weights_file
from tfrecords.base.errors import UserError
from tfrecords.base.files import read_object
from tfrecords.base.hub import MODULES, Fetch, find, module_kind, nothing_read, read_modules
from tfrecords.tokenizers.folders.folder_files import tokenizer_files

# What keras-hub downloads itself.
PRESETS = ("kaggle://", "hf://")
_ADAPTER = "adapter_config.json"
_CONFIG = "config.json"
_PRESET = "metadata.json"
# The weights of a folder, by precedence.
_WHOLE = (MODEL_FILE, "model.safetensors", f"model.safetensors{SHARDS}")
_PICKLES = ("pytorch_model.bin", f"pytorch_model.bin{SHARDS}")
_KERAS_HUB = ("model.weights.h5", "task.weights.h5")
# Models whose pickle was permitted in this process.
_permitted: set[str] = set()


def is_preset(path: Any) -> bool:
    """Returns whether `path` names a preset of keras-hub: kaggle://... or hf://..."""
    return str(path).startswith(PRESETS)


def check_model(path: str | os.PathLike, allow_pickle: bool = False) -> None:
    """Raises UserError if `path` holds no model; a hub model is downloaded."""
    if not is_preset(path) and not (found := find_model(path, allow_pickle=allow_pickle)).exists():
        detect(found)


def find_model(path: str | os.PathLike, revision: str = "", allow_pickle: bool = False) -> Path:
    """Returns `path` if it exists; otherwise downloads the hub model of that name and returns its folder.

    Args:
        path: a folder, a file, or a name such as "albert/albert-base-v2" or "albert/albert-base-v2@REVISION".
        revision: branch, tag or commit of a hub model; empty: the main branch.
        allow_pickle: whether weights may be a PyTorch pickle if there are no safetensors. True also holds for later
            calls with this path.

    Raises:
        UserError: the model cannot be found, downloaded or read, or has only pickled weights.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> str(find_model(folder)) == folder
    True
    """
    if allow_pickle:
        _permitted.add(os.fspath(path))
    is_permitted = os.fspath(path) in _permitted
    found = find(path, _with_pickles if is_permitted else _needed, revision)
    if not is_permitted and found.is_dir() and (pickle := _pickle_in(found)):
        raise UserError(_not_permitted(path, pickle))
    return found


def _pickle_in(folder: Path) -> str:
    modules = read_modules(folder.joinpath) if (folder / MODULES).is_file() else []
    places = [folder / module["path"] for module in modules] or [folder]
    read = (weights_file(place) for place in places if not (place / MODEL_FILE).is_file())
    return next((os.path.relpath(file, folder) for file in read if file.name in _PICKLES and file.is_file()), "")


def _not_permitted(name: str | os.PathLike, file: str) -> str:
    return (
        f"'{name}' has its weights as a pickle alone ('{file}'), which can run code when opened; if you trust it,"
        f" add --allow_pickle (before fine-tuning, to convert_checkpoint), or albert_tf.load('{name}',"
        " allow_pickle=True)"
    )


def _needed(name: str, listed: Sequence[str], fetch: Fetch, allow_pickle: bool = False) -> list[str]:
    if _ADAPTER in listed:
        raise UserError(
            f"'{name}' is a PEFT adapter ({_ADAPTER}), which is not read here; merge it into its base model"
        )
    modules = read_modules(fetch) if MODULES in listed else []
    inside, *others = [f"{module['path']}/".removeprefix("/") for module in modules] or [""]
    weights = _weights(name, listed, inside, fetch, allow_pickle)
    if f"{inside}{_CONFIG}" in listed and inside + _PRESET not in listed:
        check_kind(read_object(fetch(f"{inside}{_CONFIG}")), name)
    here = _in(listed, inside)
    small = [f"{inside}{file}" for file in {*tokenizer_files(here), *(one for one in here if _matches(one))}]
    small += [file for file in listed if file not in small and _matches(file)] if inside else []
    for prefix, module in zip(others, modules[1:]):
        kind = module_kind(module)
        small += [f"{prefix}{_CONFIG}"] if kind != "Normalize" or f"{prefix}{_CONFIG}" in listed else []
        has_weights = kind in ("Dense", "SparseStaticEmbedding")
        small += _weights(name, listed, prefix, fetch, allow_pickle) if has_weights else []
        if "route" in module:
            small += [f"{prefix}{one}" for one in tokenizer_files(_in(listed, prefix))]
    if unknown := unknown_names(file for file in here if "/" not in file):
        logging.warning("'%s' holds files that are not read: %s", name, ", ".join(unknown))
    return [*small, *weights]


def _in(listed: Sequence[str], folder: str) -> list[str]:
    return [file.removeprefix(folder) for file in listed if file.startswith(folder)]


def _weights(name: str, listed: Sequence[str], inside: str, fetch: Fetch, allow_pickle: bool) -> list[str]:
    names = (*_WHOLE, _KERAS_HUB[0], *_PICKLES)
    file = next((file for one in names if (file := f"{inside}{one}") in listed), None)
    if file is None:
        raise nothing_read(name, listed, f"weights ({', '.join((*_WHOLE[:2], *_KERAS_HUB[:1]))}) that are")
    if file.endswith(_PICKLES) and not allow_pickle:
        raise UserError(_not_permitted(name, file))
    if file.endswith(_KERAS_HUB):
        return [f"{inside}{one}" for one in reversed(_KERAS_HUB) if f"{inside}{one}" in listed]
    if not file.endswith(SHARDS):
        return [file]
    shards = {f"{inside}{shard}" for shard in shards_of(fetch(file)).values()}
    return [*sorted(shards), file]


def _matches(file: str) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in _SMALL)


_SMALL = tuple(file for kind in ("configuration", "tokenizer", "sentence-transformers") for file in READ[kind].split())
_with_pickles = functools.partial(_needed, allow_pickle=True)
