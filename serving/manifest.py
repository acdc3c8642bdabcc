"""Reads the versions of a servable and their manifests."""

from pathlib import Path
from typing import Any

from serving.lite.description import MODEL_FILE
from tfrecords.base.errors import UserError
from tfrecords.base.files import check_format, read_json

# What tensorflow_model_server looks for in a version's folder; with --prefer_tflite_model first for the latter.
SAVED_MODEL, LITERT = "saved_model.pb", MODEL_FILE
MANIFEST = "assets.extra/manifest.json"
FORMAT_VERSION = 2
_OBJECTS, _TEXTS = ("versions", "config", "export"), ("created",)


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
    if not isinstance(manifest, dict):
        raise UserError(f"'{path}' is damaged: it holds no JSON object; export the model again")
    check_format(f"'{path}'", manifest, FORMAT_VERSION)
    for names, kind, said in ((_OBJECTS, dict, "JSON object"), (_TEXTS, str, "string")):
        for name in names:
            if not isinstance(manifest.get(name), kind):
                raise UserError(f"'{path}' is damaged: its '{name}' is no {said}; export the model again")
    if not isinstance(manifest["export"].get("model"), str):
        raise UserError(f"'{path}' is damaged: its export's 'model' is no string; export the model again")
    return manifest
