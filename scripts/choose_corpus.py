"""What the user called a corpus, as the file pattern that the stages take."""

import glob
import os
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.corpus import find_files

SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")


def corpus_pattern(corpus: str, caller: Path) -> str:
    """A glob that matches the files of `corpus`: a file, a folder, or a glob, relative to the folder of the caller.

    Raises:
        UserError: when there is no such file, or its name cannot be part of a pattern.
    """
    path = caller / Path(corpus).expanduser()
    if "," in str(path):
        raise UserError(f"--corpus={corpus} has a comma, which parts patterns; rename it or give a glob with ? instead")
    if path.is_dir():
        pattern = ",".join(f"{glob.escape(str(path))}/*{suffix}" for suffix in SUFFIXES if any(path.glob(f"*{suffix}")))
        if not pattern:
            raise UserError(f"--corpus={corpus} holds no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    else:
        pattern = glob.escape(str(path)) if path.exists() else str(path)
    try:
        find_files(pattern)
    except UserError:
        raise UserError(f"--corpus={corpus} matches no file; give a .txt or .jsonl file, a folder or a glob") from None
    return pattern


def fingerprint(pattern: str) -> list[str]:
    """Changes when a file of the corpus does."""
    states = [(path, os.stat(path)) for path in find_files(pattern)]
    return [f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states]
