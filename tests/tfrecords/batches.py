"""How records are read without our reader, and batches compared."""

import numpy as np
import tensorflow as tf


def features_of(path, compression=""):
    """The features of each record of a file, parsed by protobuf alone: lists of numbers by name."""
    return [
        {name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in example.features.feature.items()}
        for example in (
            tf.train.Example.FromString(record)
            for record in tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator()
        )
    ]


def assert_same(left, right):
    """Both lists hold the same features with the same numbers, in order."""
    assert len(left) == len(right)
    for one, other in zip(left, right):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
