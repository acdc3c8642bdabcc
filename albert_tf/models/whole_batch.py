"""Computes the loss of a part of a batch as its share of the whole batch's loss.

Training first adds up the `loss_divisors` of all parts; each loss term is divided by its sum. If a loss compares rows,
the model's `survey` computes the compared values of all parts before.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.base import Tensor
from tfrecords.base.errors import UserError

# Under another backend models need no TensorFlow.
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

# The divisor, by Keras's name of a loss's reduction.
_DIVISORS = {"sum_over_batch_size": "rows", "mean": "rows", "mean_with_sample_weight": "weights", "sum": "nothing"}

Divisors = dict[str, Tensor]


class BatchPart(NamedTuple):
    """The divisors of losses in a part of a batch (`own`) and in the whole batch.

    `whole` also has the `survey` results, and the index of the part's `first_row` in these.
    """

    own: Divisors
    whole: Divisors

    def scale(self, name: str) -> Tensor:
        """Returns the factor that turns the part's mean loss per replica into its share of the whole batch's loss."""
        if name == "nothing":
            return 1.0
        # Exactly 1 where replicas have equal parts.
        return ops.divide_no_nan(self.own[name] * _replicas(), self.whole[name])


_PART: contextvars.ContextVar[BatchPart | None] = contextvars.ContextVar("part", default=None)


@contextlib.contextmanager
def part_of(own: Divisors, whole: Divisors) -> Iterator[None]:
    """A context in which losses are shares of a whole batch's loss."""
    before = _PART.set(BatchPart(own, whole))
    try:
        yield
    finally:
        _PART.reset(before)


def current_part() -> BatchPart | None:
    """Returns the part whose loss is being computed; None for a whole batch."""
    return _PART.get()


def count(x: Any, sample_weight: Tensor = None) -> Divisors:
    """Counts the rows, and adds up their weights (default: 1)."""
    ids = x["input_ids"] if isinstance(x, dict) else x
    rows = ops.cast(ops.shape(ids)[0], "float32")
    return {"rows": rows, "weights": rows if sample_weight is None else ops.sum(ops.cast(sample_weight, "float32"))}


def share_of_batch(loss: Tensor, name: str = "rows") -> Tensor:
    """Returns a part's share of a mean loss; the shares of all parts and replicas sum to the mean."""
    part, replicas = current_part(), _replicas()
    # Keras's own losses do the same within a `tf.distribute` strategy.
    loss = loss / replicas if replicas > 1 else loss
    return loss if part is None else loss * part.scale(name)


def divisor_of(loss: Any) -> str:
    """Returns the divisor of losses passed to `compile`: "rows", "weights" or "nothing"; UserError if they differ."""
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
    return tf.distribute.get_strategy().num_replicas_in_sync
