"""How batches of records are compared."""

import numpy as np


def assert_same(left, right):
    """Both lists hold the same features with the same numbers, in order."""
    assert len(left) == len(right)
    for one, other in zip(left, right):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
