"""Downloads the needed files of a Hugging Face hub repository into the cache of `huggingface_hub`."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from tfrecords.base.errors import UserError, first_line, nearest
from tfrecords.base.files import inside, read_json, read_object

_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-][\w./-]*))?")
# Names of files, which may look like those of models.
_FILES = (".keras", ".safetensors", ".bin", ".json", ".h5", ".index", ".txt", ".model")
# The list of sentence-transformers' modules, which says in which folder the model lies.
MODULES = "modules.json"
# The routes of a module that is a Router.
ROUTER = "router_config.json"
_TIMEOUT_S = 30
_LOGIN = "hf auth login, or set HF_TOKEN"
# Every repository of the hub has this file: a cache without it lacks other files, too.
_MARK = ".gitattributes"

Fetch = Callable[[str], Path]
# A function (name, listed, fetch) that returns which of a repository's `listed` files are needed, or raises UserError.
# `fetch` downloads one that it has to read.
Choose = Callable[[str, Sequence[str], Fetch], Sequence[str]]


def read_modules(fetch: Fetch) -> list[dict[str, Any]]:
    """Reads sentence-transformers' modules.json; a Router becomes its modules, those for queries last.

    Modules have `path`, `type` and, in a Router, `route`. Raises UserError for a damaged file, and for routes other
    than documents by default and queries by one SparseStaticEmbedding.
    """
    modules = read_json(path := fetch(MODULES))
    are_objects = isinstance(modules, list) and all(isinstance(module, dict) for module in modules)
    if not are_objects or not all(isinstance(module.get("path"), str) for module in modules):
        raise UserError(f"'{path}' is no list of sentence-transformers' modules; copy it again, or remove it")
    if [module_kind(module) for module in modules] != ["Router"]:
        return modules
    place = f"{modules[0]['path']}/".removeprefix("/")
    inside(Path(), place, path)
    values = read_object(path := fetch(place + ROUTER))
    try:
        types, routes, said = (values[name] for name in ("types", "structure", "parameters"))
        routed = [
            {"path": f"{place}{name}".rstrip("/"), "type": types[name], "route": route}
            for route in ("document", "query")
            for name in routes[route]
        ]
        is_known = [module_kind(one) for one in routed if one["route"] == "query"] == ["SparseStaticEmbedding"]
        is_known &= len(routes) == 2 and said.keys() <= {"default_route", "allow_empty_key", "route_mappings"}
        is_known &= said["default_route"] == "document" and not said.get("route_mappings")
    except (KeyError, TypeError, AttributeError):
        is_known = False
    if not is_known:
        raise UserError(
            f"'{path}': of Routers, those alone are read that have the routes query, one SparseStaticEmbedding, and "
            "document, which is the default_route, and no route_mappings"
        )
    return routed


def module_kind(module: Mapping[str, Any]) -> str:
    """Returns the name of a module's class."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def nothing_read(name: str, listed: Iterable[str], what: str) -> UserError:
    """Returns the error about a repository without any file that `what` could be read from."""
    files = ", ".join(file for file in listed if not file.startswith("."))[:200]
    return UserError(f"'{name}' has no {what} read here; it has {files or 'no files'}")


def inner_folder(listed: Iterable[str], fetch: Fetch) -> str:
    """Returns a model's folder in its repository: the first in modules.json, such as "0_Transformer/", or ""."""
    modules = read_modules(fetch) if MODULES in listed else []
    path_of_first = inside(Path(), modules[0]["path"], Path(MODULES)) if modules else Path()
    return "" if path_of_first == Path() else f"{path_of_first}/"


def find(path: str | os.PathLike, choose: Choose, revision: str = "") -> Path:
    """Returns `path`, or downloads a hub model such as "albert/albert-base-v2@REVISION" and returns its folder.

    An existing path has priority. Raises UserError if the model cannot be found or downloaded.
    """
    text = os.fspath(path)
    found = _NAME.fullmatch(text)
    try:
        is_here = Path(text).exists() or Path(f"{text}.index").is_file()
    except OSError as error:
        raise UserError(f"cannot look for '{text[:60]}': {error.strerror}") from error
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
    return _download(found["name"], revision or found["revision"] or "", choose)


def _library():
    # Imported when a name is given: it takes half a second, and most models are on the disk.
    import huggingface_hub.constants

    return huggingface_hub


@functools.cache
def _download(name: str, revision: str, choose: Choose) -> Path:
    library, endpoint = _library(), os.environ.get("HF_ENDPOINT")
    try:
        info = library.HfApi(endpoint=endpoint).model_info(name, revision=revision or None, timeout=_TIMEOUT_S)
        listed = sorted(sibling.rfilename for sibling in info.siblings or [])
        options = {"revision": revision or None, "endpoint": endpoint}

        def fetch(file: str) -> Path:
            # No alarm (B615): the revision is in the options.
            return Path(library.hf_hub_download(name, _in(listed, file, name), **options))  # nosec B615

        needed = [_in(listed, file, name) for file in choose(name, listed, fetch)]
        folder = Path(library.snapshot_download(name, allow_patterns=[*needed, _MARK], **options))  # nosec B615
    except UserError:
        raise
    except Exception as error:
        # huggingface_hub passes on the errors of its HTTP libraries unchanged, so their types vary.
        if _is_unreachable(error) and (cached := _cached(name, revision, choose)):
            return cached
        raise UserError(_explained(error, name, revision)) from None
    # Where the hub fails meanwhile, the library returns what the cache has.
    if missing := [file for file in needed if not (folder / file).is_file()]:
        raise UserError(f"the download of '{name}' stopped before '{missing[0]}'; run the command again")
    return folder


def _in(listed: Sequence[str], file: str, name: str) -> str:
    if file not in listed:
        raise UserError(f"'{name}' lacks the file '{file}', which its other files ask for")
    return file


def _is_unreachable(error: Exception) -> bool:
    return (_status(error) or 500) >= 500


def _status(error: BaseException | None) -> int | None:
    if error is None:
        return None
    return getattr(getattr(error, "response", None), "status_code", None) or _status(error.__cause__)


def _explained(error: Exception, name: str, revision: str) -> str:
    constants = _library().constants
    kind, hub = type(error).__name__, os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    status = _status(error)
    if isinstance(error, PermissionError):
        return f"cannot write to the cache '{constants.HF_HUB_CACHE}'; set HF_HUB_CACHE to a folder of yours"
    if kind == "GatedRepoError":
        return f"'{name}' is gated: accept its terms at {hub}/{name}, then {_LOGIN}"
    if kind == "RevisionNotFoundError":
        return f"'{name}' has no revision '{revision or 'main'}'; its page lists them: {hub}/{name}/tree/main"
    if kind in ("RepositoryNotFoundError", "DisabledRepoError") or status in (401, 403):
        return (
            f"there is no folder '{name}', and {hub} has no model of this name that you may read (status {status});"
            f" check its spelling, or, if it is private, {_LOGIN}"
        )
    if _is_unreachable(error):
        why = f"status {status}" if status else first_line(error)
        return (
            f"'{name}' is no folder, is not in the cache '{constants.HF_HUB_CACHE}', and {hub} cannot be reached "
            f"({why}); check the network and HF_HUB_OFFLINE, or give a folder (docs/guide/models.md says how)"
        )
    return f"cannot download '{name}' from {hub}: {first_line(error)}"


def _cached(name: str, revision: str, choose: Choose) -> Path | None:
    options: dict[str, Any] = {"revision": revision or None, "local_files_only": True, "allow_patterns": []}
    try:
        folder = Path(_library().snapshot_download(name, **options))  # nosec B615
    except Exception:
        return None  # The library raises an error of its own for each way of not being there.
    listed = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    try:
        for file in choose(name, listed, folder.joinpath):
            _in(listed, file, name)
    except UserError as error:
        logging.warning("of '%s' the cache has a part: %s", name, error)
        return None
    logging.warning(
        "'%s' is from the cache, since the hub cannot be asked: commit %s%s",
        *(name, folder.name),
        "" if _MARK in listed else f"; it may lack files that its page has ({MODULES})",
    )
    return folder
