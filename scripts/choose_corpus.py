"""What the user called a corpus, as the file pattern that the stages take."""

import glob
import os
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.base.text_files import JSON_LINES, ending, is_gzipped
from tfrecords.corpus import find_files

# Of a folder's files; a .json file there may be anything.
ENDINGS = (".txt", *(one for one in JSON_LINES if one != ".json"))


def corpus_pattern(corpus: str, caller: Path) -> str:
    """A glob that matches the files of `corpus`: a file, a folder, or a glob, relative to the folder of the caller.

    Raises:
        UserError: when there is no such file, or its name cannot be part of a pattern.
    """
    path = caller / Path(corpus).expanduser()
    if "," in str(path):
        raise UserError(f"--corpus={corpus} has a comma, which parts patterns; rename it or give a glob with ? instead")
    if path.is_dir():
        names = [one.name for one in path.iterdir() if one.is_file() and ending(one) in ENDINGS]
        # As they are written, with .gz where it is there.
        suffixes = {name[-len(ending(name)) - 3 * is_gzipped(name) :] for name in names}
        pattern = ",".join(f"{glob.escape(str(path))}/*{suffix}" for suffix in sorted(suffixes))
        if not pattern:
            raise UserError(
                f"--corpus={corpus} holds no file ending in {', '.join(ENDINGS)}, or in one of them and .gz"
            )
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
