"""The syntax trees of this repository's modules."""

import ast
import functools

from scripts.imports import Sources


@functools.cache
def all_sources() -> Sources:
    """Returns the sources, read once."""
    return Sources()


def tree(module: str) -> ast.Module:
    """Returns the tree of a module by its dotted name."""
    path = all_sources().file_of(module)
    if path is None:
        raise LookupError(f"no file of this repository is the module '{module}'")
    return all_sources().files[path].tree
