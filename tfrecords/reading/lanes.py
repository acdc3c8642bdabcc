"""The order of training rows: an epoch's rows are cut into lanes, and each worker reads only its own.

The files, fair samples of the corpus, are shuffled, concatenated and cut into `lanes` equal parts; row q of the epoch
is row q // lanes of lane q % lanes. Each lane is shuffled in windows. The order does not depend on the number of
workers.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrecords.examples.randomness import derive

_ORDER, _WINDOW = 4, 5


def number_of_lanes(files: int, at_once: int) -> int:
    """Returns `at_once`; for few files, the largest power of two with at least two files per lane."""
    return at_once if files >= 2 * at_once else 1 << max(0, (files // 2).bit_length() - 1)


def shuffle_seed(*parts: int | tf.Tensor) -> tf.Tensor:
    """Derives a seed for `stateless_shuffle`, int32 [2], from numbers."""
    numbers = [tf.convert_to_tensor(part, tf.int64) for part in parts]
    seed = tf.numpy_function(lambda *numbers: np.atleast_1d(derive(*numbers)).view(np.int32), numbers, tf.int32)
    return tf.ensure_shape(seed, [2])


class Lanes:
    """Rows in training order. read: returns the dataset of the rows in the named file. counts: rows in each file."""

    def __init__(self, read: Callable, names: list[str], counts: list[int], lanes: int, window: int, seed: int):
        self._read, self._names, self._counts = read, names, np.array(counts, np.int64)
        self._total, self._lanes, self._seed = sum(counts), lanes, seed
        self._window = max(1, window // lanes)

    def rows(self, skip: int, step: int, worker: int) -> tf.data.Dataset:
        """Returns rows skip + worker, skip + worker + step, ... of all epochs in sequence; `step` divides `lanes`."""
        first = skip + worker

        # A search for Python's loops in it, and in what it calls, would take longer than all else here.
        @tf.autograph.experimental.do_not_convert
        def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            plan = tf.numpy_function(lambda number: self._plan(number, first, step), [epoch], [tf.int64] * 5)
            lanes, windows, skips, splits, stretches = plan
            for one, shape in zip(plan, ([None], [None], [None], [None], [None, 3])):
                one.set_shape(shape)

            def of_lane(place: tf.Tensor) -> tf.data.Dataset:
                return self._lane(
                    epoch, lanes[place], windows[place], skips[place], stretches[splits[place] : splits[place + 1]]
                )

            # This worker reads equally many lanes in every epoch.
            return tf.data.Dataset.range(self._lanes // step).interleave(
                of_lane, cycle_length=self._lanes // step, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            )

        return tf.data.Dataset.range(first // self._total, np.iinfo(np.int64).max).flat_map(of_epoch)

    def _lane(
        self, epoch: tf.Tensor, lane: tf.Tensor, first_window: tf.Tensor, skip: tf.Tensor, stretches: tf.Tensor
    ) -> tf.data.Dataset:
        names = tf.constant(self._names)

        def shuffle(window: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
            return tf.random.experimental.stateless_shuffle(
                rows, shuffle_seed(self._seed, _WINDOW, epoch, lane, window)
            )

        rows = tf.data.Dataset.from_tensor_slices(stretches).flat_map(
            lambda stretch: self._read(names[stretch[0]]).skip(stretch[1]).take(stretch[2])
        )
        windows = rows.batch(self._window).enumerate(start=0)
        return windows.map(lambda number, some: shuffle(number + first_window, some)).unbatch().skip(skip)

    def _plan(self, epoch: int, first: int, step: int) -> tuple[np.ndarray, ...]:
        files = np.argsort(derive(self._seed, _ORDER, epoch, np.arange(len(self._names))))
        splits = np.concatenate([[0], np.cumsum(self._counts[files])])
        lanes, windows, skips, stretch_splits, stretches = [], [], [], [0], []
        size, more = divmod(self._total, self._lanes)
        # The first row of this worker in the epoch; later epochs begin where the one before ended.
        begin = max(first - epoch * self._total, (first - epoch * self._total) % step)
        for row in range(begin, begin + self._lanes, step):
            lane = row % self._lanes
            done = row // self._lanes
            start, end = (place * size + min(place, more) for place in (lane, lane + 1))
            window = done // self._window
            lanes.append(lane)
            windows.append(window)
            skips.append(done - window * self._window)
            stretches += stretches_of(files, splits, min(start + window * self._window, end), end)
            stretch_splits.append(len(stretches))
        stretches = np.array(stretches, np.int64).reshape(-1, 3)
        return *(np.array(one, np.int64) for one in (lanes, windows, skips, stretch_splits)), stretches


def stretches_of(files: np.ndarray, splits: np.ndarray, start: int, end: int) -> list[tuple[int, int, int]]:
    """Locates the rows [`start`, `end`) of concatenated files: (file, rows to skip, rows to read)."""
    first, last = np.searchsorted(splits, [start, end], side="right") - 1
    found = []
    for place in range(first, min(last, len(files) - 1) + 1):
        begin, stop = max(start, splits[place]), min(end, splits[place + 1])
        if stop > begin:
            found.append((int(files[place]), int(begin - splits[place]), int(stop - begin)))
    return found
