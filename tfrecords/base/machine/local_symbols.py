"""Keeps TensorFlow's C++ symbols to itself: import this module before TensorFlow."""

import contextlib
import sys
from importlib.machinery import ModuleSpec

# TensorFlow 2.20 and 2.21 load themselves with RTLD_GLOBAL if they can import this module. A library that is loaded
# later, such as triton (by torch 2.14), then takes their LLVM for its own, and the process ends by a segmentation fault
# (tensorflow issue 124205, cured in 2.22).
_FLAGS = "tensorflow.python.pywrap_dlopen_global_flags"
_VERSIONS = ("2.20.", "2.21.")


class LocalSymbols:
    """A finder of modules that lets the import of _FLAGS fail, which TensorFlow expects of its other builds."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raises ImportError for that module of those versions; finds nothing."""
        if name == _FLAGS and _version().startswith(_VERSIONS):
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)
        return None


def _version() -> str:
    # Here, since whoever only calls a server need not wait for it.
    from importlib import metadata

    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


sys.meta_path.insert(0, LocalSymbols)
