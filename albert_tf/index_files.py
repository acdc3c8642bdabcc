"""What a saved index says of itself, without TensorFlow."""

from pathlib import Path
from typing import Any

from tfrecords.base import files
from tfrecords.base.errors import UserError

ABOUT = "index.json"


def about_index(folder: Path) -> dict[str, Any]:
    """Returns the description of a finished index; {} without one."""
    path = folder / ABOUT
    return files.read_json(path) if path.is_file() else {}


def saved_source(folder: str) -> str:
    """Returns the model that built a saved index; raises UserError without one."""
    if not (about := about_index(Path(folder))):
        raise UserError(f"--index_dir={folder} holds no finished index; build it by --model=... and --text_file=...")
    return about["source"]
