"""Several models' answers as one model's: the mean of logits; of spans, the mean over the models that proposed them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.squad.combination import combine_spans, for_combination


def reduced(outputs: Sequence[Any]) -> list[Any]:
    """What `combine` needs of each row's output of one model; much less than the model gives for spans."""
    return [for_combination(output) if isinstance(output, Mapping) else output for output in outputs]


def combine(members: Sequence[Sequence[Any]]) -> list[Any]:
    """The outputs of an ensemble, in the form of one model's.

    Args:
        members: of each model, for each row its output: an array of logits or values, or a dict with `spans`.
    """
    return [_combine_row(outputs) for outputs in zip(*members, strict=True)]


def _combine_row(outputs: Sequence[Any]) -> Any:
    if isinstance(outputs[0], Mapping):
        return combine_spans(outputs)
    return np.mean(np.asarray(outputs, np.float64), axis=0)
