"""What the pair head is asked: chance is one half, however many pairs there are of each kind."""

import numpy as np
import pytest

from experiments import measures


class Answers:
    """Says of a batch what its first word is."""

    def predict_on_batch(self, features):
        assert set(features) == {"input_ids", "input_mask", "segment_ids", "masked_lm_positions"}
        return {"pair_logits": np.eye(2)[features["input_ids"][:, 0]]}


def batch(answers, labels):
    ids = np.array(answers)[:, None]
    others = dict.fromkeys(("input_mask", "segment_ids", "masked_lm_positions"), ids)
    return {"input_ids": ids, "next_sentence_labels": np.array(labels)[:, None]} | others


@pytest.mark.parametrize(
    ("answers", "labels", "expected"),
    [
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 0], 0.5),
        ([0, 0, 0, 0, 0], [1, 1, 1, 1, 0], 0.5),
        ([1, 1, 1, 0, 0], [1, 1, 1, 1, 0], (0.75 + 1) / 2),
        ([1, 0, 1, 1, 0], [0, 1, 0, 0, 1], 0.0),
        ([1, 0, 1, 1, 1], [1, 1, 1, 1, 1], 0.8),
    ],
)
def test_accuracy_is_the_mean_over_the_labels(answers, labels, expected):
    batches = [batch(answers[:3], labels[:3]), batch(answers[3:], labels[3:])]
    assert measures._balanced_accuracy(Answers(), batches) == pytest.approx(expected)
