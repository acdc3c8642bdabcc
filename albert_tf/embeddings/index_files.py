"""Reads the descriptions of saved indexes, without TensorFlow."""

from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError

ABOUT = "index.json"
_SAID = {"model", "source", "texts", "vectors", "has_graph", "files_sha256"}


def about_index(folder: Path) -> dict[str, Any]:
    """Returns the description of a finished index; {} if there is none."""
    path = folder / ABOUT
    about = files.read_json(path) if path.is_file() else {}
    if not isinstance(about, dict) or (about and not about.keys() >= _SAID):
        raise UserError(f"'{path}' describes no index; remove it, and build the index anew")
    return about


def saved_source(folder: str) -> str:
    """Returns the name of the model that built a saved index; raises UserError if unknown."""
    if not (about := about_index(Path(folder))):
        raise UserError(f"--index_dir={folder} holds no finished index; build it by --model=... and --text_file=...")
    if not about["source"]:
        raise UserError(f"--index_dir={folder} was built by a model in memory; save that, and give it by --model=...")
    return about["source"]
