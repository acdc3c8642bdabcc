"""Finds LiteRT versions in folders."""

import os
from pathlib import Path

from serving.lite.description import FILE


def version_folder(folder: str | os.PathLike) -> Path:
    """Returns a version's folder: itself, or the newest of the numbered folders in it that hold a LiteRT version."""
    folder = Path(folder)
    if (folder / FILE).exists() or not folder.is_dir():
        return folder
    versions = [path for path in folder.iterdir() if path.name.isdecimal() and (path / FILE).exists()]
    return max(versions, key=lambda path: int(path.name), default=folder)


def holds_version(folder: str | os.PathLike) -> bool:
    """Returns whether a folder is a LiteRT version, or holds some."""
    return (version_folder(folder) / FILE).exists()
