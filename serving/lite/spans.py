"""Finds the best spans in a window's numbers, as `albert_tf.models.heads` does."""

from typing import Any

import numpy as np

from serving.lite.description import Answer
from serving.lite.rows import Row
from tfrecords.answers.spans import IMPOSSIBLE


def span_outputs(answer: Answer, row: Row, found: Row) -> dict[str, Any]:
    """Returns the outputs of AlbertSpanPredictor for a window; `row` is of `RowMaker.windows`."""
    if answer.joint:
        starts, index, ends = found["start_log_probs"], found["start_index"], found["end_log_probs"]
        null = {"answerable_logits": found["no_answer_score"]}
    else:
        starts, ends = (_log_softmax(np.where(row["allowed"], logits, IMPOSSIBLE)) for logits in found["logits"].T)
        index = _best(np.where(row["may_start"], starts, IMPOSSIBLE), answer.start_top)
        null = {"start_log_probs": starts, "end_log_probs": ends}
    first, place = index[:, np.newaxis], np.arange(len(starts))
    is_legal = (place >= first) & (place < first + answer.max_answer_length) & row["may_start"][first]
    scores = np.where(is_legal, starts[first] + ends, IMPOSSIBLE).ravel()
    best = _best(scores, answer.start_top * answer.end_top)
    spans = {"start_index": index[best // len(starts)], "end_index": best % len(starts), "score": scores[best]}
    return {"spans": spans} | null


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:count]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
