"""Lanes: each is a fair part of the files, in an order that a plan alone decides, wherever reading begins."""

import random

import numpy as np
import pytest
import tensorflow as tf

from tfrecords.lanes import Lanes, number_of_lanes


def planned(order, skip, step, worker, count, like=None):
    """The first rows by the plan of `lanes` alone, windows shuffled by Python, or into the order of `like`."""
    found, first = [], skip + worker
    epoch = first // order._total
    while len(found) < count:
        lanes, windows, skips, splits, stretches = order._plan(epoch, first, step)
        turns = []
        for place, lane in enumerate(lanes):
            rows = [
                int(file) * 10**6 + int(passed) + row
                for file, passed, size in stretches[splits[place] : splits[place + 1]]
                for row in range(size)
            ]
            shuffled = []
            for start in range(0, len(rows), order._window):
                window = rows[start : start + order._window]
                if like is None:
                    random.Random(f"{epoch} {lane} {start // order._window + windows[place]}").shuffle(window)
                else:
                    window.sort(key=like[epoch * order._total :].index)
                shuffled += window
            turns.append(shuffled[skips[place] :])
        while any(turns):
            found += [turn.pop(0) for turn in turns if turn]
        epoch += 1
    return found[:count]


# No number of workers divides their sum.
UNEVEN = [5, 1, 0, 9, 30, 2, 2, 18]


class TestLanes:
    """Files of whole numbers instead of records: file n holds n * 10**6, n * 10**6 + 1, ..."""

    def lanes(self, counts, lanes, window=64, seed=7):
        names = [str(number) for number in range(len(counts))]
        sizes = tf.constant(counts, tf.int64)

        def read(name):
            number = tf.strings.to_number(name, tf.int64)
            return tf.data.Dataset.range(number * 10**6, number * 10**6 + sizes[number])

        return Lanes(read, names, counts, lanes, window, seed)

    def test_any_start_goes_on_as_if_never_stopped(self):
        order, total = self.lanes(UNEVEN, 6, window=24), sum(UNEVEN)
        whole = list(order.rows(0, 1, 0).take(3 * total).as_numpy_iterator())
        assert whole == planned(order, 0, 1, 0, 3 * total, whole)
        for skip, step, worker in ((total // 2, 1, 0), (total + 3, 2, 1), (total - 1, 3, 0)):
            part = list(order.rows(skip, step, worker).take(total // step).as_numpy_iterator())
            assert part == whole[skip + worker :: step][: total // step]

    @pytest.mark.parametrize(
        ("counts", "lanes"),
        [(UNEVEN, 6), (UNEVEN, 1), ([40] * 9, 4), ([1, 1], 6)],
    )
    def test_plans_of_any_start_and_worker_fit_and_an_epoch_holds_all(self, counts, lanes):
        order, total = self.lanes(counts, lanes, window=lanes * 4), sum(counts)
        whole = planned(order, 0, 1, 0, 4 * total)
        every = sorted(file * 10**6 + row for file, count in enumerate(counts) for row in range(count))
        assert all(sorted(whole[epoch * total : (epoch + 1) * total]) == every for epoch in range(4))
        for skip in range(0, 2 * total, max(1, total // 7)):
            for step in [step for step in (1, 2, 3) if lanes % step == 0]:
                for worker in range(step):
                    part = planned(order, skip, step, worker, total // step)
                    assert part == whole[skip + worker :: step][: total // step]

    def test_a_worker_reads_its_own_files_and_a_restart_little(self):
        order = self.lanes([1000] * 64, 16, window=1600)
        read_by = []
        for worker in range(4):
            *_, stretches = order._plan(0, worker, 4)
            read_by.append(set(stretches[:, 0].tolist()))
        # Files at the ends of lanes are of two lanes.
        assert sum(map(len, read_by)) <= 64 + 16
        assert order._plan(0, 0, 4)[4][:, 2].sum() == 16_000
        # Behind three quarters of the epoch: passed over are a part of a file and of a window a lane.
        _, _, skips, _, stretches = order._plan(0, 48_000, 1)
        assert stretches[:, 1].sum() + skips.sum() <= 16 * (1000 + 100)
        assert stretches[:, 2].sum() - skips.sum() == 16_000

    @pytest.mark.parametrize("shards", [8, 12_500])
    def test_topics_in_batches_of_a_sorted_corpus(self, shards):
        """Documents of eight examples, a third of one source, dealt to shards: shares in batches as by chance."""
        rows, batch = 3600, 4096
        order = self.lanes([rows] * shards, number_of_lanes(shards, 64), window=16384)
        generator = np.random.default_rng(1)
        count = min(20, shards * rows // batch)
        places = order.rows(0, 1, 0).take(count * batch).batch(batch, drop_remainder=True).as_numpy_iterator()
        topics = {}
        shares = []
        for of_batch in places:
            files, examples = np.divmod(of_batch, 10**6)
            of_row = np.empty(batch)
            for file in np.unique(files).tolist():
                if file not in topics:
                    documents = generator.random(rows // 8) < 1 / 3
                    topics[file] = generator.permutation(np.repeat(documents, 8))
                of_row[files == file] = topics[file][examples[files == file]]
            shares.append(of_row.mean())
        seen = np.mean([topic.mean() for topic in topics.values()]) if shards <= 100 else 1 / 3
        deviation = np.sqrt(np.mean((np.array(shares) - seen) ** 2))
        assert deviation <= 1.5 * np.sqrt(1 / 3 * 2 / 3 / batch)
