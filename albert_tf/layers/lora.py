"""Low-rank adapters (Hu et al. 2021): a small product of two matrices is trained beside each frozen kernel."""

from collections.abc import Iterable

import keras
from keras import ops

from tfrecords.base.errors import UserError

PROJECTIONS = ("query", "key", "value", "output")


def check(rank: int, names: Iterable[str]) -> None:
    """Raises UserError for a rank below 1, or a projection that attention does not have."""
    if not isinstance(rank, int) or rank < 1:
        raise UserError(f"enable_lora(rank={rank!r}): a rank is a whole number of 1 or more, such as 4")
    unknown = [name for name in names if name not in PROJECTIONS]
    if unknown:
        raise UserError(f"enable_lora: '{unknown[0]}' is none of {', '.join(PROJECTIONS)}")


def merge(layer: keras.layers.Dense) -> None:
    """Adds the adapter to the kernel, which is trained itself from then on."""
    scale = layer.lora_alpha / layer.lora_rank
    layer._kernel.assign_add(
        ops.cast(scale * ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b), layer._kernel.dtype)
    )
    del layer.lora_kernel_a, layer.lora_kernel_b
    layer.lora_enabled, layer.lora_rank = False, None


def with_adapters(model: keras.Model) -> list[keras.layers.Dense]:
    """The layers that have adapters, each once."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


def has_adapters(model: keras.Model) -> bool:
    return bool(with_adapters(model))
