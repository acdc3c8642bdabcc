"""Conversion of checkpoints from and to other code bases."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_tf.checkpoints.huggingface import load_huggingface, save_huggingface
    from albert_tf.checkpoints.keras_hub import load_keras_hub
    from albert_tf.checkpoints.official import load_official, save_official

__all__ = [
    "load_huggingface",
    "load_keras_hub",
    "load_official",
    "save_huggingface",
    "save_official",
]


# A module is imported when one of its functions is asked for.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'albert_tf.checkpoints' has no attribute '{name}'")
    return getattr(importlib.import_module(f"albert_tf.checkpoints.{name.partition('_')[2]}"), name)
