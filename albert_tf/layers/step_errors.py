"""What TensorFlow says in a hundred lines of a value in a batch that no model can read, in one."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from albert_tf.layers.lookup import plain
from tfrecords.base.errors import UserError

NO_TEXTS = (
    "texts are not read; call loaded.predict(texts) of what albert_tf.load returns, or "
    "albert_tf.Preprocessor(tokenizer)(texts)"
)
# What its kernels say of an index: of a lookup, and of the cross-entropy.
_SAID = (
    (re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)"), "an id or a position"),
    (re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)"), "labels"),
)


def is_text(data: Any) -> bool:
    """Returns whether data is a string, or a list of strings."""
    return isinstance(data, (str, bytes)) or (
        isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], (str, bytes))
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Makes one line of TensorFlow's error for a value of a batch that is out of range.

    Raises:
        UserError: in its place.
    """
    try:
        yield
    except Exception as error:
        # Known by its name: models work without TensorFlow.
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
