"""Families of published models: one file each, and those of other packages by the entry point `albert_tf.families`."""

import functools
import importlib
import importlib.metadata
import pkgutil

from albert_tf.families.table import Family, Source

__all__ = ["Family", "Source", "families"]
_GROUP, _TABLE = "albert_tf.families", "table"


@functools.cache
def families() -> tuple[Family, ...]:
    """Returns all families: those of this folder, then those that other packages add.

    An entry point names a `Family`, such as `nova = "nova_models.family:NOVA"`.
    """
    own = [one.name for one in pkgutil.iter_modules(__path__) if one.name != _TABLE]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in own]
    others = [entry.load() for entry in importlib.metadata.entry_points(group=_GROUP)]
    return (*(one for module in modules for one in vars(module).values() if isinstance(one, Family)), *others)
