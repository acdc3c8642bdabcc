import functools
import time
from typing import Any

import keras
import numpy as np
from absl import logging
from keras import ops

from albert_tf.analysis.run_cost import training_flops
from albert_tf.config import AlbertConfig

# Rows of the square matrices that are multiplied: the smallest and largest number, which doubles until a product takes
# this many seconds. The largest matrices take 1 GiB in float32, for a moment.
_SMALLEST, _LARGEST, _LONG_ENOUGH = 512, 8192, 0.004
_TURNS = 8
# Seconds after which the device is measured again, where that is cheap.
_FRESH = 60.0


class Utilisation:
    """Computes model FLOPs utilisation (MFU), relative to the measured rate of the device.

    The device's rate is its best so far, in large matrix products or in training. A row's work is three forward passes
    of the encoder, with padding; heads, optimizer, teacher, permutations' queries and recomputation do not count.
    """

    def __init__(self, config: AlbertConfig, settings: Any, replicas: int = 1):
        self._replicas = replicas
        # The number of steps of these is not known beforehand.
        self.is_known = not any(one.walk or one.draws for one in config.extensions)
        dtype = keras.DTypePolicy(settings.dtype_policy).compute_dtype
        self._dtypes = tuple(dict.fromkeys([dtype, "float32"]))
        self._work_of = functools.cache(lambda length: training_flops(config, length, 1, {}, vars(settings)))
        self._peak, self._has_said = 0.0, False
        self._measure()

    def work(self, rows: int, length: int) -> float:
        """Returns the floating-point operations of training on `rows` rows; 0 if unknown."""
        return rows * self._work_of(length) if self.is_known else 0.0

    def share(self, work: float, seconds: float) -> float | None:
        """Returns the MFU of `work`; None if unknown, or above 1 because the device lags behind."""
        share = work / seconds / self._peak if self.is_known else 2.0
        return share if share <= 1 else None

    def figures(self, work: float, seconds: float) -> dict[str, float]:
        if not self.is_known:
            return {}
        rate = work / seconds
        if rate > self._peak:
            self.measure_again(0.0)
        if rate > self._peak:
            self._say(rate)
            self._peak = rate
        return {"mfu": rate / self._peak}

    def measure_again(self, fresh: float = _FRESH) -> None:
        """Measures the rate again if it is `fresh` seconds old; only on CPUs, since this takes memory."""
        is_due = time.monotonic() - self._measured_at >= fresh
        if is_due and all(name.startswith("cpu") for name in keras.distribution.list_devices()):
            self._measure()

    def _measure(self) -> None:
        if self.is_known:
            self._peak = max(self._peak, *(self._replicas * matrix_rate(dtype) for dtype in self._dtypes))
        self._measured_at = time.monotonic()

    def _say(self, rate: float) -> None:
        if not self._has_said:
            self._has_said = True
            logging.warning(
                "training computes %.3g GFLOP/s, more than the %.3g of a large product of matrices by which MFU is "
                "measured: other work took the device meanwhile. From here on MFU is relative to training's own best "
                "rate, and earlier rows of history.csv have it too high",
                rate / 1e9,
                self._peak / 1e9,
            )


def matrix_rate(dtype: str) -> float:
    """Returns the best FLOP/s of eight matrix products."""
    size, seconds = _SMALLEST // 2, 0.0
    while seconds < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
        matrix = ops.cast(keras.random.uniform((size, size), seed=0), dtype)
        seconds = min(_seconds_of_product(matrix) for _ in range(_TURNS))
    return 2 * size**3 / seconds


def _seconds_of_product(matrix: Any) -> float:
    started = time.perf_counter()
    # Reading a number waits for the product.
    np.asarray(ops.convert_to_numpy(ops.cast(ops.matmul(matrix, matrix)[0, 0], "float32")))
    return time.perf_counter() - started
