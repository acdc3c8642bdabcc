"""Losses on pairs: values and gradients of sentence-transformers 6.2. (In parts: test_steps.py.)"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import AlbertSentenceEmbedder
from albert_tf.choices import PAIR_LOSSES
from albert_tf.models.pair_losses import LOSSES, PairLoss
from albert_tf.models.pair_trainer import PairTrainer
from tests.albert_tf.training.portable_parts import CONFIG
from tests.refusals import refused

ROWS, WIDTH = 6, 8
RANDOM = np.random.default_rng(0)
# Of each row's anchor, positive and two negatives.
VECTORS = RANDOM.normal(size=(ROWS, 4, WIDTH)).astype("float32")
SCORES = RANDOM.integers(0, 4, ROWS).astype("float32")
TAUGHT = RANDOM.normal(size=(ROWS, 4, WIDTH)).astype("float32")
# By case: the loss, the texts of a row, the targets; the loss of sentence-transformers 6.2, and the sum of its
# gradient's absolute values.
CASES = {
    "ranking": (PairLoss(), 4, None, 8.274664878845215, 40.601593017578125),
    "symmetric": (PairLoss(symmetric=True, temperature=0.1), 4, None, 3.461803436279297, 16.617412567138672),
    "matryoshka": (PairLoss(dims=(8, 4, 2)), 4, None, 32.2120246887207, 133.68313598632812),
    "cosent": (PairLoss("cosent"), 2, SCORES, 9.857686996459961, 55.546302795410156),
    "triplet": (PairLoss("triplet"), 3, None, 1.199493408203125, 5.887225151),
    "mse": (PairLoss("mse"), 2, TAUGHT[:, :2], 2.3782174587249756, 2.522946834564209),
    "margin_mse": (PairLoss("margin_mse"), 4, TAUGHT[:, 0, :2], 8.439841270446777, 74.878036499),
}


def test_every_loss_has_a_rule_and_a_case():
    assert list(PAIR_LOSSES) == list(LOSSES)
    assert {loss.name for loss, *_ in CASES.values()} == set(LOSSES)


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_sentence_transformers(case):
    loss, texts, targets, *expected = CASES[case]
    targets, vectors = None if targets is None else targets.reshape(ROWS, -1), tf.Variable(VECTORS)
    with tf.GradientTape() as tape:
        value = loss(vectors[:, 0], vectors[:, 1:texts], targets)
    gradient = tf.convert_to_tensor(tape.gradient(value, vectors))
    assert_allclose([value, np.abs(gradient).sum()], expected, rtol=1e-5)


def test_what_no_loss_is():
    with refused("'mnrl' is unknown; choose one of multiple_negatives_ranking, cosent"):
        PairLoss("mnrl")
    with refused(r"dims=\(16, 8, 16\) name a width twice"):
        PairLoss(dims=(16, 8, 16))
    with refused("the width 32 must be from 1 to the 16"):
        PairTrainer(AlbertSentenceEmbedder(CONFIG), PairLoss(dims=(16, 32)))
