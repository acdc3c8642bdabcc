"""Combined outputs of several models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfrecords.answers.spans import IMPOSSIBLE
from tfrecords.base.errors import UserError


def combine(members: Sequence[Sequence[Any]]) -> list[Any]:
    """Combines several models' lists of outputs row by row: averages logits, or calls `combine_spans`."""
    return [_combine_row(outputs) for outputs in zip(*members, strict=True)]


def _combine_row(outputs: Sequence[Any]) -> Any:
    if isinstance(outputs[0], Mapping):
        return combine_spans(outputs)
    return np.mean(np.asarray(outputs, np.float64), axis=0)


def _spans_of(output: Mapping[str, Any]) -> dict[str, Any]:
    spans = output["spans"]
    legal = np.asarray(spans["score"]) > IMPOSSIBLE / 2
    needed: dict[str, Any] = {"spans": {name: np.asarray(values)[legal] for name, values in spans.items()}}
    if "answerable_logits" in output:
        return needed | {"answerable_logits": np.atleast_1d(output["answerable_logits"])}
    # "No answer" is scored at [CLS], a row's first token or its last one: all positions are returned.
    return needed | {side: np.asarray(output[side]) for side in ("start_log_probs", "end_log_probs")}


def combine_spans(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combines several models' spans for one row.

    A span's score is the mean over the models that proposed it. Scores of "no answer" are not averaged yet: first
    each model's minimum over all windows must be known (squad_utils.py:855-908, 942-953 of google-research/albert).
    """
    outputs = [_spans_of(output) for output in outputs]
    if len({tuple(output) for output in outputs}) > 1:
        raise UserError("plain and joint span heads score differently that there is no answer; combine models of one")
    scores: dict[tuple[int, int], list[float]] = {}
    for output in outputs:
        spans = output["spans"]
        for first, last, score in zip(spans["start_index"], spans["end_index"], spans["score"]):
            scores.setdefault((int(first), int(last)), []).append(float(score))
    means = sorted(((np.mean(values), *span) for span, values in scores.items()), key=lambda one: -one[0])
    score, first, last = np.array(means).reshape(-1, 3).T
    spans = {"start_index": first.astype(int), "end_index": last.astype(int), "score": score}
    combined: dict[str, Any] = {"spans": spans}
    if "answerable_logits" in outputs[0]:
        return combined | {"answerable_logits": np.concatenate([output["answerable_logits"] for output in outputs])}
    sides = ("start_log_probs", "end_log_probs")
    return combined | {side: np.stack([output[side] for output in outputs]) for side in sides}
