"""Reads configuration files of other code bases."""

import dataclasses
import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from albert_tf.config.published import (
    CONFIG_FILES,
    DEFAULTS,
    IGNORED_KEYS,
    MODEL_TYPES,
    MPNET_MUST_EQUAL,
    MUST_EQUAL,
    NAMED,
    OTHER_NAMES,
    ROBERTA_TYPES,
)
from albert_tf.config.registry import KEYS
from albert_tf.permutation import configuration as permutation
from tfrecords.base.errors import UserError, nearest
from tfrecords.base.files import read_json
from tfrecords.base.hub import MODULES, Fetch, find, inner_folder, nothing_read

Config = TypeVar("Config")
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")

_ONLY_ALBERT = ("embedding_size", "num_hidden_groups", "sharing", "depth_plan")
_HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_python": "gelu_erf",
    "swish": "silu",
}


def read_name(make: Callable[..., Config], name: str) -> Config:
    """Implements `AlbertConfig.named`."""
    name = OTHER_NAMES.get(name, name)
    if name not in NAMED:
        # A short name resembles more words than the intended long one.
        near = nearest(name, [*NAMED, *OTHER_NAMES])
        near = re.sub(r"'(.*)'", lambda found: f"'{OTHER_NAMES.get(found[1], found[1])}'", near)
        raise UserError(f"no configuration is called '{name}'{near}; known: {', '.join(NAMED)}")
    return make(**NAMED[name])


def find_config(name: str) -> Path | None:
    """Returns the configuration file for the path or hub model `name`; None for other names."""
    found = find(name, _needed)
    if name.endswith(".json") or not found.is_dir():
        return found if name.endswith(".json") else None
    inside = found / inner_folder(os.listdir(found), found.joinpath)
    names = _of_config(os.listdir(inside))
    if not names:
        raise UserError(f"the folder '{name}' holds no configuration ({', '.join(CONFIG_FILES.split())})")
    return inside / names[0]


def _of_config(names: Sequence[str]) -> list[str]:
    return [name for pattern in CONFIG_FILES.split() for name in sorted(fnmatch.filter(names, pattern))]


def _needed(name: str, listed: Sequence[str], fetch: Fetch) -> list[str]:
    inside = inner_folder(listed, fetch)
    names = _of_config([file.removeprefix(inside) for file in listed if file.startswith(inside)])
    if not names:
        raise nothing_read(name, listed, "configuration that is")
    return [*(file for file in (MODULES,) if file in listed), f"{inside}{names[0]}"]


def read_values(make: Callable[..., Config], values: Mapping[str, Any], where: str = "") -> Config:
    """Implements `AlbertConfig.from_dict`; `where` names the file in warnings."""
    own = [field for field in dataclasses.fields(make) if field.name not in ("extensions", "unused")]
    defaults = {field.name: field.default for field in own} | dict.fromkeys(KEYS)
    return make(**read_fields(values, defaults, where))


def read_file(make: Callable[..., Config], path: str | os.PathLike, model_type: str | None) -> Config:
    """Implements `AlbertConfig.from_json`."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"'{path}' holds no JSON object")
    if model_type is not None:
        values.setdefault("model_type", model_type)
    said = [permutation.NAMES.get(key) for key in values] if permutation.describes(values) else list(values)
    missing = [key for key in _SIZES if key not in said]
    try:
        check_kind(values)
        if not missing:
            return read_values(make, values, str(path))
    except UserError as error:
        raise UserError(f"'{path}': {error}") from error
    kinds = values.get("architectures")
    described = f"; it describes a {kinds[0]}" if isinstance(kinds, list) and kinds else ""
    raise UserError(f"'{path}' lacks {', '.join(missing)}{described}")


def read_fields(values: Mapping[str, Any], defaults: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Translates an official or HuggingFace configuration to AlbertConfig's fields."""
    check_kind(values)
    from_huggingface = "model_type" in values or "transformers_version" in values
    if permutation.describes(values):
        _check_keys(values, permutation.NAMES, permutation.MUST_EQUAL, from_huggingface, where)
        known = permutation.read(values)
    else:
        known = _known(values, defaults, from_huggingface, where)
    if from_huggingface and isinstance(known["hidden_act"], str):
        known["hidden_act"] = _HUGGINGFACE_ACTIVATIONS.get(known["hidden_act"], known["hidden_act"])
    return known


def _known(
    values: Mapping[str, Any], defaults: Mapping[str, Any], from_huggingface: bool, where: str
) -> dict[str, Any]:
    model_type, fixed = values.get("model_type"), MUST_EQUAL
    if from_huggingface:
        fixed = MUST_EQUAL | (MPNET_MUST_EQUAL if model_type == "mpnet" else {})
        defaults = {key: value for key, value in defaults.items() if key not in MPNET_MUST_EQUAL}
    _check_keys(values, defaults, fixed, from_huggingface, where)
    known = {key: value for key, value in values.items() if key in defaults}
    if model_type in ROBERTA_TYPES:
        padding = values.get("pad_token_id")
        padding = 1 if padding is None else padding
        # Another kind of value is no offset, as the configuration says.
        known = {"position_offset": padding + 1 if type(padding) is int else padding} | known
    says_albert = model_type == "albert" or known.keys() & set(_ONLY_ALBERT)
    if model_type not in (None, "albert") or not says_albert:
        known = {"sharing": "none", "embedding_size": known.get("hidden_size", defaults["hidden_size"])} | known
    elif "num_hidden_groups" not in known and values.keys() & {"directionality", "ln_type"}:
        known["factorization"] = "word"
    if model_type == "albert" and known.get("embedding_size", 128) == known.get("hidden_size"):
        known.setdefault("always_project", True)
    if from_huggingface:
        known = DEFAULTS[model_type or ("albert" if says_albert else "bert")] | known
    return known


def check_kind(values: Mapping[str, Any], where: str = "") -> None:
    """Raises UserError if a configuration's model_type is not supported; `where` names its model."""
    kind, said = values.get("model_type"), f"'{where}': " if where else ""
    if kind is not None and kind not in MODEL_TYPES:
        raise UserError(f"{said}model_type {kind!r} is not supported; it must be one of {', '.join(MODEL_TYPES)}")


def _check_keys(
    values: Mapping[str, Any], names: Iterable[str], fixed: Mapping[str, tuple], is_theirs: bool, where: str
) -> None:
    unknown = list[str]()
    for key, value in values.items():
        if key in names:
            continue
        if key in fixed:
            if value not in fixed[key]:
                raise UserError(f"{key} {value!r} is another architecture; supported: {fixed[key]}")
        elif key not in IGNORED_KEYS and not (is_theirs and key.startswith("_")) and key != "auto_map":
            unknown.append(key)
    if not unknown:
        return
    misspelt = [key for key in unknown if difflib.get_close_matches(key, list(names), n=1, cutoff=0.85)]
    for key in misspelt if is_theirs else unknown:
        raise UserError(f"unknown configuration key '{key}'{nearest(key, names)}")
    if "auto_map" in values:
        raise UserError(f"unknown configuration key '{unknown[0]}' of a model with code of its own (auto_map)")
    said = f"'{where}': " if where else ""
    logging.warning("%skeys that transformers does not know either are passed over: %s", said, ", ".join(unknown))
