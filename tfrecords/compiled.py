"""numba with its disk cache where a disk can be written, without it elsewhere."""

import functools
from collections.abc import Callable

import numba


def compiled(function: Callable | None = None, **options) -> Callable:
    """`numba.njit` that releases the GIL and keeps its machine code beside the source, or in the user's cache folder.

    In a container where neither can be written the code is compiled anew in each process.
    """
    if function is None:
        return functools.partial(compiled, **options)
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:
        return numba.njit(function, nogil=True, **options)
