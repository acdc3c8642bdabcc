"""Models of the Hugging Face hub by name: the files that are read, downloaded into the hub's cache.

`huggingface_hub` does the work: its cache, tokens, progress bars, `HF_HUB_OFFLINE` and `HF_ENDPOINT` apply. It is
imported when a name is given, and not before.
"""

import contextlib
import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from albert_tf.model_files import MODEL_FILE, READ, SHARDS, detect, unknown_names
from albert_tf.published import MODEL_TYPES
from tfrecords.base.errors import UserError, first_line, nearest
from tfrecords.base.files import read_json

# What keras-hub downloads itself.
PRESETS = ("kaggle://", "hf://")
_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-][\w./-]*))?")
# Names of files, which may look like those of models.
_FILES = (".keras", ".safetensors", ".bin", ".json", ".h5", ".index", ".txt", ".model")
_MODULES = "modules.json"
_ADAPTER = "adapter_config.json"
_CONFIG = "config.json"
_PRESET = "metadata.json"
# The weights of a folder, by precedence.
_WHOLE = (MODEL_FILE, "model.safetensors", f"model.safetensors{SHARDS}")
_PICKLES = ("pytorch_model.bin", f"pytorch_model.bin{SHARDS}")
_KERAS_HUB = ("model.weights.h5", "task.weights.h5")
_TIMEOUT_S = 30
_ATTEMPTS = 3
_BROKEN = ("ChunkedEncodingError", "RemoteProtocolError", "ReadError", "ReadTimeout", "ConnectionError")
_LOGIN = "hf auth login, or set HF_TOKEN"

Fetch = Callable[[str], Path]


def is_preset(path: Any) -> bool:
    """Returns whether `path` names a preset that keras-hub downloads: kaggle://... or hf://..."""
    return str(path).startswith(PRESETS)


def check_model(path: str | os.PathLike) -> None:
    """Raises UserError where there is nothing at `path` that could be a model; what is there may still be damaged.

    A name of the hub is downloaded. A preset's name is left to keras-hub.
    """
    if not is_preset(path) and not (found := find_model(path)).exists():
        detect(found)


def find_model(path: str | os.PathLike, revision: str = "", allow_pickle: bool = False) -> Path:
    """Returns where a model is on this machine: `path` itself, or the folder of a model of the hub, once downloaded.

    What exists wins over a name. In a process, a name is looked up once.

    Args:
        path: a folder or file, or a name such as "albert/albert-base-v2", or "albert/albert-base-v2@REVISION".
        revision: the branch, tag or commit of a name; empty: the main branch.
        allow_pickle: whether weights may be a PyTorch pickle where there are no safetensors.

    Raises:
        UserError: there is no such model or revision, it needs a token, holds nothing that is read here, or the hub
            cannot be reached.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> str(find_model(folder)) == folder
    True
    """
    text = os.fspath(path)
    found = _NAME.fullmatch(text)
    is_here = Path(text).exists() or Path(f"{text}.index").is_file()
    if is_here or found is None or text.endswith(_FILES):
        if revision:
            raise UserError(f"revision '{revision}' is for models of the hub, and '{text}' is a path; leave it out")
        return Path(text)
    if revision and found["revision"] not in (None, revision):
        raise UserError(f"'{text}' names a revision, and revision='{revision}' another; leave one out")
    parent = Path(text).parent
    if not (revision or found["revision"]) and parent.is_dir():
        near = nearest(Path(text).name, (entry.name for entry in parent.iterdir()))
        raise UserError(
            f"there is no '{Path(text).name}' in the folder '{parent}'{near}; for the hub's model of this name give"
            f" '{text}@main'"
        )
    return _download(found["name"], revision or found["revision"] or "", allow_pickle)


@functools.cache
def _download(name: str, revision: str, allow_pickle: bool) -> Path:
    # Imported here: it takes half a second, and most models are on the disk.
    import huggingface_hub

    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        info = huggingface_hub.HfApi(endpoint=endpoint).model_info(name, revision=revision or None, timeout=_TIMEOUT_S)
    except Exception as error:
        # Of each of its HTTP libraries the hub's passes on the errors as they are.
        if _is_unreachable(error) and (cached := _cached(name, revision, allow_pickle)):
            return cached
        raise UserError(_explained(error, name, revision)) from error

    listed = sorted(sibling.rfilename for sibling in info.siblings or [])

    def fetch(file: str) -> Path:
        if file not in listed:
            raise UserError(f"'{name}' lacks the file '{file}', which its other files ask for")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return Path(huggingface_hub.hf_hub_download(name, file, revision=info.sha, endpoint=endpoint))
            except Exception as error:
                # Each attempt goes on where the one before broke off; older versions of the library make but one.
                if attempt == _ATTEMPTS or type(error).__name__ not in _BROKEN:
                    raise UserError(f"{_explained(error, name, revision)} (its file '{file}')") from error
        raise AssertionError("unreachable")

    folder = _fetch_all(name, listed, fetch, allow_pickle)
    # For `_cached`: the commit of the branch, and whether there are modules.
    known = huggingface_hub.try_to_load_from_cache
    small = min((str(path.relative_to(folder)) for path in folder.rglob("*.json")), key=len, default="")
    if small and known(name, small, revision=revision or None) != str(folder / small):
        _note(name, small, revision, endpoint)
    if known(name, _MODULES, revision=info.sha) is None:
        _note(name, _MODULES, revision, endpoint)
    return folder


def _note(name: str, file: str, revision: str, endpoint: str | None) -> None:
    """Has the library ask for a file by its branch: its cache notes the commit, or that there is no such file."""
    import huggingface_hub

    with contextlib.suppress(Exception):
        huggingface_hub.hf_hub_download(name, file, revision=revision or None, endpoint=endpoint)


def _fetch_all(name: str, listed: Sequence[str], fetch: Fetch, allow_pickle: bool) -> Path:
    """Downloads what is read, the weights last: a folder of the cache that has them is whole."""
    if _ADAPTER in listed:
        raise UserError(
            f"'{name}' is a PEFT adapter ({_ADAPTER}), which is not read here; merge it into its base model"
        )
    modules = read_json(fetch(_MODULES)) if _MODULES in listed else []
    inside, *others = [f"{module['path']}/".removeprefix("/") for module in modules] or [""]
    weights = _weights(name, listed, inside, fetch, allow_pickle)
    if f"{inside}{_CONFIG}" in listed and inside + _PRESET not in listed:
        _check_type(name, read_json(fetch(f"{inside}{_CONFIG}")))
    groups = [READ[kind].split() for kind in ("configuration", "tokenizer", "sentence-transformers")]
    patterns = [pattern for group in groups for pattern in group]
    here = [file.removeprefix(inside) for file in listed if file.startswith(inside)]
    small = [f"{inside}{file}" for file in here if _matches(file, (*patterns, "assets/tokenizer/*"))]
    small += [file for file in listed if file not in small and _matches(file, patterns)] if inside else []
    if not _vocabularies(small):
        small += [f"{inside}{file}" for file in here if _matches(file, ("*.model", "*vocab*.txt")) and "/" not in file]
    for prefix, module in zip(others, modules[1:]):
        kind = str(module.get("type")).rsplit(".", 1)[-1]
        small += [f"{prefix}{_CONFIG}"] if kind != "Normalize" or f"{prefix}{_CONFIG}" in listed else []
        small += _weights(name, listed, prefix, fetch, allow_pickle) if kind == "Dense" else []
    for file in small:
        fetch(file)
    if unknown := unknown_names(file for file in here if "/" not in file):
        logging.warning("'%s' holds files that are not read: %s", name, ", ".join(unknown))
    last = [fetch(file) for file in weights][-1]
    return last.parents[weights[-1].count("/")]


def _weights(name: str, listed: Sequence[str], inside: str, fetch: Fetch, allow_pickle: bool) -> list[str]:
    """Names the files of the weights; of weights in several files the index comes last."""
    names = (*_WHOLE, _KERAS_HUB[0], *_PICKLES)
    file = next((file for one in names if (file := f"{inside}{one}") in listed), None)
    if file is None:
        read = ", ".join((*_WHOLE[:2], *_KERAS_HUB[:1]))
        found = ", ".join(file for file in listed if not file.startswith("."))[:200]
        raise UserError(f"'{name}' has no weights that are read here ({read}); it has {found or 'no files'}")
    if file.endswith(_PICKLES) and not allow_pickle:
        raise UserError(
            f"'{name}' has its weights as a pickle alone ('{file}'), which is not downloaded unless you ask:"
            f" albert_tf.load('{name}', allow_pickle=True), or hf download {name} --local-dir {Path(name).name}"
        )
    if file.endswith(_KERAS_HUB):
        return [f"{inside}{one}" for one in reversed(_KERAS_HUB) if f"{inside}{one}" in listed]
    if not file.endswith(SHARDS):
        return [file]
    shards = {f"{inside}{Path(shard).name}" for shard in read_json(fetch(file)).get("weight_map", {}).values()}
    return [*sorted(shards), file]


def _check_type(name: str, values: Any) -> None:
    """Raises UserError for a model of another family before its weights are downloaded."""
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind is not None and kind not in MODEL_TYPES:
        raise UserError(f"'{name}' is a model of type '{kind}'; those that are read here are {', '.join(MODEL_TYPES)}")


def _matches(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


def _vocabularies(names: Iterable[str]) -> list[str]:
    known = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "30k-clean.model", "sentencepiece.bpe.model")
    return [name for name in names if Path(name).name in known or "assets/tokenizer/" in name]


# Errors of the hub's library and of the HTTP libraries that its versions use, by name.
_UNREACHABLE = (
    *("ConnectError", "ConnectTimeout", "ReadTimeout", "PoolTimeout", "Timeout", "TimeoutException", "ConnectionError"),
    *("ConnectionResetError", "ProxyError", "SSLError", "ReadError", "RemoteProtocolError", "OfflineModeIsEnabled"),
)


def _is_unreachable(error: Exception) -> bool:
    return type(error).__name__ in _UNREACHABLE or (_status(error) or 0) >= 500


def _status(error: BaseException | None) -> int | None:
    """The status of the answer behind an error, or behind the one that caused it."""
    if error is None:
        return None
    return getattr(getattr(error, "response", None), "status_code", None) or _status(error.__cause__)


def _explained(error: Exception, name: str, revision: str) -> str:
    """Says in one line what went wrong, and what to do."""
    from huggingface_hub import constants

    kind, hub = type(error).__name__, os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    status = _status(error)
    if kind == "GatedRepoError":
        return f"'{name}' is gated: accept its terms at {hub}/{name}, then {_LOGIN}"
    if kind == "RevisionNotFoundError":
        return f"'{name}' has no revision '{revision or 'main'}'; its page lists them: {hub}/{name}/tree/main"
    if kind in ("RepositoryNotFoundError", "DisabledRepoError") or status in (401, 403):
        return (
            f"there is no folder '{name}', and {hub} has no model of this name that you may read (status {status});"
            f" check its spelling, or, if it is private, {_LOGIN}"
        )
    place = f"is not in the cache '{constants.HF_HUB_CACHE}'"
    if kind == "OfflineModeIsEnabled" or (kind == "LocalEntryNotFoundError" and constants.HF_HUB_OFFLINE):
        return (
            f"'{name}' is no folder, {place}, and HF_HUB_OFFLINE=1 forbids to download it; unset it, or give a folder"
        )
    if _is_unreachable(error) or kind == "LocalEntryNotFoundError":
        why = f"status {status}" if status else first_line(error)
        return (
            f"'{name}' is no folder, {place}, and {hub} cannot be reached ({why}); check the network, or give a folder"
        )
    if isinstance(error, PermissionError):
        return f"cannot write to the cache '{constants.HF_HUB_CACHE}'; set HF_HUB_CACHE to a folder of yours"
    return f"cannot download '{name}' from {hub}: {first_line(error)}"


def _cached(name: str, revision: str, allow_pickle: bool) -> Path | None:
    """Finds what an earlier download left, where the hub cannot be asked; None where that is not whole."""
    import huggingface_hub

    patterns = [file for kind in ("configuration", "tokenizer", "sentence-transformers") for file in READ[kind].split()]
    options: dict[str, Any] = {"revision": revision or None, "local_files_only": True, "allow_patterns": patterns}
    try:
        folder = Path(huggingface_hub.snapshot_download(name, **options))
    except Exception:
        return None  # The library raises an error of its own for each way of not being there.
    listed = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    try:
        _fetch_all(name, listed, lambda file: _existing(folder / file), allow_pickle)
    except UserError as error:
        logging.warning("of '%s' the cache has a part: %s", name, error)
        return None
    is_known = huggingface_hub.try_to_load_from_cache(name, _MODULES, revision=folder.name) is not None
    logging.warning(
        "'%s' is from the cache, since the hub cannot be asked: commit %s%s",
        *(name, folder.name),
        "" if is_known or ".gitattributes" in listed else f"; it may lack files that its page has ({_MODULES})",
    )
    return folder


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"it lacks '{path.name}'")
    return path
