"""Memory, as the history of a run shows it."""

import resource
import sys

import keras


def memory_figures() -> dict[str, float]:
    """Peaks so far in GiB: memory_gb of this process and, where there is a GPU, device_memory_gb of its first."""
    # Linux counts kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 2**10
    figures = {"memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30}
    device = _jax_device_peak() if keras.backend.backend() == "jax" else _tensorflow_device_peak()
    return figures if device is None else figures | {"device_memory_gb": device / 2**30}


def _jax_device_peak() -> int | None:
    import jax

    statistics = jax.local_devices()[0].memory_stats()
    return statistics.get("peak_bytes_in_use") if statistics else None


def _tensorflow_device_peak() -> int | None:
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    return tf.config.experimental.get_memory_info(f"GPU:{gpus[0].name.rsplit(':', 1)[1]}")["peak"] if gpus else None
