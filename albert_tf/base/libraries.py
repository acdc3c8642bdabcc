import importlib.util

from tfrecords.base.errors import UserError


def check_libraries(asker: str, **packages: str) -> None:
    """Raises UserError if a library that `asker` needs is missing; `packages` maps module names to PyPI names."""
    if missing := [package for module, package in packages.items() if importlib.util.find_spec(module) is None]:
        raise UserError(f"{asker} needs {' and '.join(missing)}: pip install {' '.join(missing)}")
