import contextlib
import re
from collections.abc import Iterator

from albert_tf.base.layers import plain
from tfrecords.base.errors import UserError

# TensorFlow's messages about an index, in a lookup and in the cross-entropy.
_SAID = (
    (re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)"), "an id or a position"),
    (re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)"), "labels"),
)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Replaces TensorFlow's error for an id or label out of range by a one-line UserError."""
    try:
        yield
    except Exception as error:
        # Compared by name: models work without TensorFlow.
        if type(error).__name__ != "InvalidArgumentError":
            raise
        found = next(((said, what) for form, what in _SAID if (said := form.search(str(error)))), None)
        if found is None:
            raise
        (value, count), what = found[0].groups(), found[1]
        message = f"{what}: {value} in a batch of the data is not from 0 to {int(count) - 1}"
    else:
        return
    raise plain(UserError(message))
