"""Lanes: each is a fair part of the files, in an order that a plan alone decides, wherever reading begins."""

import numpy as np
import pytest
import tensorflow as tf

from tfrecords.reading.lanes import Lanes, number_of_lanes

# No number of workers divides their sum.
UNEVEN = [5, 1, 0, 9, 30, 2, 2, 18]


def lanes(counts, lanes, window=64, seed=7):
    """Of files of whole numbers instead of records: file n holds n * 10**6, n * 10**6 + 1, ..."""
    names = [str(number) for number in range(len(counts))]
    sizes = tf.constant(counts, tf.int64)

    def read(name):
        number = tf.strings.to_number(name, tf.int64)
        return tf.data.Dataset.range(number * 10**6, number * 10**6 + sizes[number])

    return Lanes(read, names, counts, lanes, window, seed)


def test_any_start_goes_on_as_if_never_stopped():
    order, total = lanes(UNEVEN, 6, window=24), sum(UNEVEN)
    whole = list(order.rows(0, 1, 0).take(3 * total).as_numpy_iterator())
    for skip, step, worker in ((total // 2, 1, 0), (total + 3, 2, 1), (total - 1, 3, 0)):
        part = list(order.rows(skip, step, worker).take(total // step).as_numpy_iterator())
        assert part == whole[skip + worker :: step][: total // step]


def test_a_worker_reads_its_own_files_and_a_restart_little():
    order = lanes([1000] * 64, 16, window=1600)
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
def test_topics_in_batches_of_a_sorted_corpus(shards):
    """Documents of eight examples, a third of one source, dealt to shards: shares in batches as by chance."""
    rows, batch = 3600, 4096
    order = lanes([rows] * shards, number_of_lanes(shards, 64), window=16384)
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
