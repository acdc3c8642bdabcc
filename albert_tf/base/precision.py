import functools
from pathlib import Path

import keras
from absl import logging

from tfrecords.base.cpu import OWN_CPU_INFO, cpu_flags

# The library of the backend only: under JAX models need no TensorFlow.
if keras.backend.backend() == "jax":
    import jax
else:
    import tensorflow as tf

_FAST = ("avx512_bf16", "amx_bf16")


@functools.cache
def warn_of_bfloat16(cpu_info: Path = OWN_CPU_INFO) -> None:
    """Warns once that bfloat16 is slow, on an x86 CPU without bfloat16 instructions and without a GPU."""
    flags = cpu_flags(cpu_info)
    if flags and not flags & set(_FAST) and not _has_accelerator():
        logging.warning(
            "this CPU has neither %s: bfloat16 is slower there than float32; give dtype_policy float32",
            " nor ".join(_FAST),
        )


def _has_accelerator() -> bool:
    if keras.backend.backend() == "jax":
        return jax.default_backend() != "cpu"
    return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())
