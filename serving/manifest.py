"""Reads the versions of a servable and their manifests."""

from pathlib import Path
from typing import Any

from tfrecords.base.errors import UserError
from tfrecords.base.files import check_format, read_json

MANIFEST = "assets.extra/manifest.json"
FORMAT_VERSION = 2
_OBJECT, _TEXT = (dict, "JSON object"), (str, "string")
_OPTIONAL_OBJECT, _OPTIONAL_TEXT = ((dict, type(None)), "JSON object"), ((str, type(None)), "string")
_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("versions", "config"), _OBJECT),
    **dict.fromkeys(("export", "compute", "task"), _OPTIONAL_OBJECT),
    **dict.fromkeys(("weights_sha256", "tokenizer_sha256"), _OPTIONAL_TEXT),
    "created": _TEXT,
}


def versions_of(base: Path) -> list[Path]:
    """Returns a servable's version folders, the latest last."""
    folders = (path for path in base.glob("*/") if path.name.isdigit() and (path / "saved_model.pb").is_file())
    return sorted(folders, key=lambda path: int(path.name))


def read_manifest(version: Path) -> dict[str, Any]:
    """Returns a version's manifest; {} if albert-tf did not export it.

    Raises UserError if it is damaged, or of another format.
    """
    path = version / MANIFEST
    if not path.is_file():
        return {}
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise UserError(f"'{path}' is damaged: it holds no JSON object; export the model again")
    check_format(f"'{path}'", manifest, FORMAT_VERSION)
    for name, (kinds, said) in _TYPES.items():
        if name in manifest and not isinstance(manifest[name], kinds):
            raise UserError(f"'{path}' is damaged: its '{name}' is no {said}; export the model again")
    if not isinstance((manifest.get("export") or {}).get("model", ""), str):
        raise UserError(f"'{path}' is damaged: its export's 'model' is no string; export the model again")
    return manifest
