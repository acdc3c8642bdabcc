"""Models of every kind that has a head at each step, and rows for them: what tests of exits share."""

import numpy as np

from albert_tf import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from tests.albert_tf.depth_cases import filled, small

CONFIG = small()
LENGTHS = np.array([[9], [3], [5], [9], [1], [7]])
MASK = (np.arange(9) < LENGTHS).astype("int32")
FEATURES = {"input_ids": np.random.default_rng(0).integers(5, 40, (6, 9)).astype("int32"), "input_mask": MASK}
KINDS = {
    "classifier": lambda exits: AlbertClassifier(CONFIG, 4, 0.0, exits),
    "regressor": lambda exits: AlbertRegressor(CONFIG, 0.0, exits),
    "token classifier": lambda exits: AlbertTokenClassifier(CONFIG, 4, 0.0, exits),
}
TARGETS = {
    "classifier": np.array([0, 1, 2, 3, 1, 0]),
    "regressor": np.linspace(0, 1, 6, dtype="float32"),
    "token classifier": np.random.default_rng(2).integers(0, 4, MASK.shape),
}


def make(kind, exits=True):
    return filled(KINDS[kind](exits))
