"""Several models' answers as one model's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.squad.answers import NO_SPAN, null_scores


def combine_spans(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several models' outputs for one row as one model's.

    A span's score is the mean over the models that proposed it, so one that a single model found is not held back;
    null scores stay apart, [models], since each model's least of all windows enters their mean
    (squad_utils.py:855-908, 942-953 of google-research/albert).
    """
    scores: dict[tuple[int, int], list[float]] = {}
    for output in outputs:
        spans = output["spans"]
        for first, last, score in zip(spans["start_index"], spans["end_index"], spans["score"]):
            if score > NO_SPAN / 2:
                scores.setdefault((int(first), int(last)), []).append(float(score))
    means = sorted(((np.mean(found), *span) for span, found in scores.items()), key=lambda one: -one[0])
    score, first, last = np.array(means).reshape(-1, 3).T
    combined: dict[str, Any] = {
        "spans": {"start_index": first.astype(int), "end_index": last.astype(int), "score": score}
    }
    if not null_scores(outputs[0])[1]:
        return combined | {"answerable_logits": np.concatenate([null_scores(output)[0] for output in outputs])}
    sides = ("start_log_probs", "end_log_probs")
    # Batches may have been padded to different lengths; only [CLS] is read again.
    return combined | {side: np.stack([output[side][:1] for output in outputs]) for side in sides}
