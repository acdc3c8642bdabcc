"""How much of a machine a training run uses: the model's FLOPs beside those of one large product of matrices."""

import functools
import time
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.analysis.run_cost import training_flops
from albert_tf.config import AlbertConfig

# Rows of the square matrices whose product is the measure, doubled until one takes so many seconds; those of the
# largest take 1 GiB in float32, for a moment.
_SMALLEST, _LARGEST, _LONG_ENOUGH = 512, 8192, 0.004
_TURNS = 4


class Utilisation:
    """Tells model FLOPs utilisation (MFU): what training asks of the encoder, as a part of what the device reaches.

    What it reaches is measured, not looked up: by products of two large matrices of the compute dtype.
    Counted are three forward passes of the encoder for every row, padding included; heads, the optimizer, a teacher,
    XLNet's query stream and memory, and what is computed again to save memory are not.

    Args:
        config: of the encoder.
        settings: of the training.
        replicas: that compute side by side.
    """

    def __init__(self, config: AlbertConfig, settings: Any, replicas: int = 1):
        self._config, self._settings = config, vars(settings)
        # Of these no batch says beforehand how many steps it makes.
        self.is_known = config.equilibrium_solver == "none" and not config.random_depth_min
        dtype = keras.DTypePolicy(settings.dtype_policy).compute_dtype
        self._peak = replicas * matrix_rate(dtype) if self.is_known else 0.0
        self._work_of = functools.cache(self._row)

    def work(self, rows: int, length: int) -> float:
        """Counts the floating-point operations of training on `rows` rows of `length` tokens."""
        return rows * self._work_of(length) if self.is_known else 0.0

    def figures(self, work: float, seconds: float) -> dict[str, float]:
        """Gives `mfu` of the work done in a time; nothing where the work is not known beforehand."""
        return {"mfu": work / seconds / self._peak} if self.is_known else {}

    def _row(self, length: int) -> float:
        return training_flops(self._config, length, 1, {}, self._settings)


def matrix_rate(dtype: str) -> float:
    """Measures the floating-point operations a second of a large product of two matrices of a dtype: the best of four.

    On one core that is 512 or 1,024 rows, on a fast accelerator 8,192.
    """
    size, seconds = _SMALLEST // 2, 0.0
    while seconds < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
        matrix = ops.cast(keras.random.uniform((size, size), seed=0), dtype)
        seconds = min(_seconds_of_product(matrix) for _ in range(_TURNS))
    return 2 * size**3 / seconds


def _seconds_of_product(matrix: Any) -> float:
    started = time.perf_counter()
    # Taking a number out waits for the product.
    np.asarray(ops.convert_to_numpy(ops.cast(ops.matmul(matrix, matrix)[0, 0], "float32")))
    return time.perf_counter() - started
