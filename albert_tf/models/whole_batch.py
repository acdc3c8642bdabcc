"""The loss of a part of a batch, as its share of the whole batch's loss.

Devices share a batch, and a step may compute it in parts. A loss is a mean: over rows, over predicted words, over
weights. The mean of the parts' means is not the mean over the batch where the parts differ in what they divide by. So a
model says what its loss divides by (`loss_divisors`), training counts that over all parts before it computes any, and
every term of a loss divides by the count of the whole batch. The gradients of the parts then add up to the batch's.

A loss that compares the rows of a batch with each other needs more than counts. Its model has a `survey`, which
computes what is compared of a part, without gradient; training calls it of all parts first.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.base import Tensor
from tfrecords.base.errors import UserError

# By Keras's name of a loss's reduction, what it divides by.
_DIVISORS = {"sum_over_batch_size": "rows", "mean": "rows", "mean_with_sample_weight": "weights", "sum": "nothing"}

Divisors = dict[str, Tensor]


class Part(NamedTuple):
    """What a loss of a part of a batch reads.

    Attributes:
        own: divisors of the part, float32 scalars by name.
        whole: the same of the whole batch, and what a model's `survey` computed, all rows of the batch in one array.
    """

    own: Divisors
    whole: Divisors

    def scale(self, name: str) -> Tensor:
        """Returns what turns a mean over the part, divided by the number of replicas, into a share of the whole."""
        if name == "nothing":
            return 1.0
        # Exactly 1 where replicas have equal parts.
        return ops.divide_no_nan(self.own[name] * _replicas(), self.whole[name])


_PART: contextvars.ContextVar[Part | None] = contextvars.ContextVar("part", default=None)


@contextlib.contextmanager
def part_of(own: Divisors, whole: Divisors) -> Iterator[None]:
    """Within it, losses are those of a part of a batch, which `current_part` returns."""
    before = _PART.set(Part(own, whole))
    try:
        yield
    finally:
        _PART.reset(before)


def current_part() -> Part | None:
    """Returns the part of a batch that a loss is computed of; None where it is of a whole batch."""
    return _PART.get()


def count(x: Any, sample_weight: Tensor = None) -> Divisors:
    """Counts what the losses of any model divide by: its rows, and the sum of its weights, which are 1 by default."""
    ids = x["input_ids"] if isinstance(x, dict) else x
    rows = ops.cast(ops.shape(ids)[0], "float32")
    return {"rows": rows, "weights": rows if sample_weight is None else ops.sum(ops.cast(sample_weight, "float32"))}


def share_of_batch(loss: Tensor, name: str = "rows") -> Tensor:
    """Returns a part's share of a mean loss, so that the shares of all parts and replicas add up to the mean.

    Args:
        loss: the mean over the part.
        name: what it divides by.
    """
    part, replicas = current_part(), _replicas()
    # Keras's own losses do the same within a `tf.distribute` strategy.
    loss = loss / replicas if replicas > 1 else loss
    return loss if part is None else loss * part.scale(name)


def divisor_of(loss: Any) -> str:
    """Returns what a loss given to `compile` divides by.

    Raises:
        UserError: several losses divide by different things, or a loss has no reduction to a number.
    """
    # A name or a function becomes a loss with Keras's default.
    reductions = {
        getattr(one, "reduction", "sum_over_batch_size") for one in keras.tree.flatten(loss) if one is not None
    }
    found = {_DIVISORS.get(reduction) for reduction in reductions}
    if len(found) != 1 or None in found:
        raise UserError(
            f"a batch in parts, or over several devices, cannot have losses with the reductions "
            f"{', '.join(sorted(map(str, reductions)))}; give all losses one of {', '.join(_DIVISORS)}"
        )
    return str(found.pop())


def _replicas() -> int:
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
