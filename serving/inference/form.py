"""How extensions take part in an export, some of them by a faster form of their mathematics."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.extension import Extension
from albert_tf.layers.block import Attention
from albert_tf.layers.depth import Runner
from albert_tf.layers.encoder import AlbertEncoder
from serving.inference.dense import array


class Settings(NamedTuple):
    """What forms may depend on.

    Attributes:
        dtype: of matrix products.
        state_dtype: of the vectors that go from step to step.
        skips_padding: whether padding is left out of all products.
        longest: tokens of the longest row.
    """

    dtype: tf.DType
    state_dtype: tf.DType
    skips_padding: bool
    longest: int


class Form(tf.Module):
    """An extension in an export: its own methods, with its weights as constants.

    A module of `serving/inference/extensions` with the name of an extension has a subclass, `Faster`, that does the
    same in less time or in fewer operations, or adds what only exports have.

    Args:
        extension: of the encoder.
        encoder: the Keras encoder.
        settings: of the export.

    Attributes:
        has_one_row: whether a batch of one row may go without tables.
    """

    has_one_row = True

    def __init__(self, extension: Extension, encoder: AlbertEncoder, settings: Settings):
        super().__init__()
        self.extension: Any = extension
        self.config, self.weights = encoder.config, encoder.extension_weights[extension.name].map(array)

    def fold(self, parts: Sequence[np.ndarray], what: str, half: tuple[str, int]) -> Sequence[np.ndarray]:
        """Returns arrays that make queries, keys and values, with something folded into them.

        Args:
            parts: of queries, keys and values.
            what: "kernel", "bias" or "low_rank", of the dense layers of an attention half.
            half: its kind and number.
        """
        return parts

    def low_rank(self, half: tuple[str, int], product: str) -> tuple[np.ndarray, np.ndarray] | None:
        """See `Extension.low_rank`."""
        return self.extension.low_rank(self.weights, half, product)

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of a signature whose rows follow others; {} if the extension remembers nothing."""
        return {}

    def rows_class(self, features: dict[str, Any]) -> Any:
        """Returns a class of rows that the features of a batch need; None for the usual ones."""
        return None

    def rows(self, rows: Any, features: dict[str, Any]) -> Any:
        """See `Extension.rows`, as for the others."""
        return self.extension.rows(rows, features, self.weights)

    def hoist(self, rows: Any) -> None:
        """Computes for the rows what all steps have in common."""

    def attention(self, attention: Attention) -> Attention:
        """Returns how heads attend, with some functions replaced."""
        return self.extension.attention(attention, self.weights)

    def around(self, runner: Runner) -> Runner:
        """Returns the runner of steps, or another one around it."""
        return self.extension.around(runner, self.weights)


def forms_of(encoder: AlbertEncoder, settings: Settings, is_plain: bool = False) -> list[Form]:
    """Makes the forms of an encoder's extensions; all of them plain ones if `is_plain`."""
    found = []
    for extension in encoder.config.extensions:
        name = f"serving.inference.extensions.{extension.name}"
        has_faster = not is_plain and importlib.util.find_spec(name) is not None
        form = importlib.import_module(name).Faster if has_faster else Form
        found.append(form(extension, encoder, settings))
    return found
