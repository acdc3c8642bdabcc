"""Reads the versions of a servable and their manifests."""

from pathlib import Path
from typing import Any

from tfrecords.base.errors import UserError
from tfrecords.base.files import check_format, read_json

MANIFEST = "assets.extra/manifest.json"
# 2 says which weights were exported; 1, which 0.1.0 wrote, does not.
FORMAT_VERSION = 2


def versions_of(base: Path) -> list[Path]:
    """Returns a servable's version folders, the latest last."""
    folders = (path for path in base.glob("*/") if path.name.isdigit() and (path / "saved_model.pb").is_file())
    return sorted(folders, key=lambda path: int(path.name))


def read_manifest(version: Path) -> dict[str, Any]:
    """Returns a version's manifest; {} if albert-tf did not export it.

    Raises UserError if it is damaged, or of a later format.
    """
    path = version / MANIFEST
    if not path.is_file():
        return {}
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise UserError(f"'{path}' is damaged: it holds no JSON object; export the model again")
    check_format(f"'{path}'", manifest, FORMAT_VERSION)
    return {"export": {}, "weights_sha256": None} | manifest
