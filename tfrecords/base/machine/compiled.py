"""Compiles functions by numba, with a disk cache that depends on all their source files."""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numba


def compiled(function: Callable | None = None, **options) -> Callable:
    """Compiles a function by `numba.njit`, without the GIL, and with a disk cache if a folder is writable."""
    if function is None:
        return functools.partial(compiled, **options)
    folder = _cache_folder()
    if folder is None:
        return numba.njit(function, nogil=True, **options)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    finally:
        numba.config.CACHE_DIR = before


@functools.cache
def _cache_folder() -> str | None:
    here = Path(__file__).parents[2]
    sources = [path.read_bytes() for path in sorted(here.rglob("*.py"))]
    digest = hashlib.sha256(
        b"".join(source for source in sources if b"tfrecords.base.machine.compiled" in source)
    ).hexdigest()
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for base in filter(None, (numba.config.CACHE_DIR, here / "__pycache__", Path(user) / "albert-tf")):
        folder = Path(base) / f"numba-{digest[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return None
