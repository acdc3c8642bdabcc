"""Reads the versions of a servable and their manifests."""

from pathlib import Path
from typing import Any

from serving.lite.description import MODEL_FILE
from tfrecords.base.errors import refuse
from tfrecords.base.files import check_format, read_json

# What tensorflow_model_server looks for in a version's folder; with --prefer_tflite_model first for the latter.
SAVED_MODEL, LITERT = "saved_model.pb", MODEL_FILE
MANIFEST = "assets.extra/manifest.json"
FORMAT_VERSION = 2
_OBJECTS = ("versions", "config", "export")


def versions_of(base: Path) -> list[Path]:
    """Returns a servable's version folders, the latest last; each has a SavedModel, a LiteRT file, or both."""
    numbered = (path for path in base.glob("*/") if path.name.isdigit())
    folders = (path for path in numbered if any((path / name).is_file() for name in (SAVED_MODEL, LITERT)))
    return sorted(folders, key=lambda path: int(path.name))


def read_manifest(version: Path) -> dict[str, Any]:
    """Returns a version's manifest; {} if albert-tf did not export it.

    Raises UserError if it is damaged, or of another format.
    """
    path = version / MANIFEST
    if not path.is_file():
        return {}
    manifest = read_json(path)
    damaged, again = f"'{path}' is damaged: ", "; export the model again"
    refuse({f"{damaged}it holds no JSON object{again}": not isinstance(manifest, dict)})
    check_format(f"'{path}'", manifest, FORMAT_VERSION)
    export = manifest.get("export")
    refuse({f"{damaged}its '{name}' is no JSON object{again}": not isinstance(manifest.get(name), dict)
            for name in _OBJECTS} | {
        f"{damaged}its 'created' is no string{again}": not isinstance(manifest.get("created"), str),
        f"{damaged}its export's 'model' is no string{again}":
            isinstance(export, dict) and not isinstance(export.get("model"), str),
    })  # fmt: skip
    return manifest
