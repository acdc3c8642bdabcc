"""Tiny models of every kind, with batches and labels for them: what the tests of models share."""

import json
from functools import partial

import keras
import numpy as np

import albert_tf
from albert_tf.checkpoints.formats import save_keras
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf import depth_cases
from tests.conftest import functions_run

ROWS, LENGTH, CHOICES, CLASSES = 4, 8, 3, 3


def small(**changes):
    return depth_cases.small(**dict(num_hidden_layers=2, max_position_embeddings=32) | changes)


# Each is called with an encoder or a configuration, and with arguments of keras.Model.
KINDS = {
    "encoder": albert_tf.AlbertEncoder,
    "classifier": partial(albert_tf.AlbertClassifier, num_classes=CLASSES),
    "regressor": albert_tf.AlbertRegressor,
    "tagger": partial(albert_tf.AlbertTokenClassifier, num_classes=CLASSES),
    "choices": albert_tf.AlbertMultipleChoice,
    "spans": albert_tf.AlbertSpanPredictor,
    "joint spans": partial(albert_tf.AlbertSpanPredictor, joint=True),
    "embedder": albert_tf.AlbertSentenceEmbedder,
    "embedder of [CLS]": partial(albert_tf.AlbertSentenceEmbedder, pooling="cls"),
    "pretrainer": albert_tf.AlbertPretrainer,
}
POOLED = ("encoder", "classifier", "regressor", "choices", "pretrainer")


def batch(kind="encoder", seed=0):
    """Rows of 8 to 5 tokens, in two segments."""
    shape = (ROWS, CHOICES, LENGTH) if kind == "choices" else (ROWS, LENGTH)
    lengths = (LENGTH - np.arange(ROWS)).reshape(-1, *[1] * (len(shape) - 1))
    mask = np.broadcast_to(np.arange(LENGTH) < lengths, shape).astype("int32")
    ids = np.random.default_rng(seed).integers(5, 40, shape).astype("int32") * mask
    found = {"input_ids": ids, "input_mask": mask, "segment_ids": (np.arange(LENGTH) > 3).astype("int32") * mask}
    return found | ({"masked_lm_positions": np.array([[1, 2]] * ROWS, "int32")} if kind == "pretrainer" else {})


def labels(kind):
    """What `fit` takes besides a batch: more features, and targets with their weights."""
    classes = np.arange(ROWS) % 2
    if kind == "tagger":
        return {}, (np.ones((ROWS, LENGTH), "int32"), np.ones((ROWS, LENGTH), "float32"))
    if kind in ("spans", "joint spans"):
        ends = {name: np.array([4] * ROWS, "int32") for name in ("start_positions", "end_positions")}
        return ends | ({"is_impossible": (classes == 1).astype("int32")} if kind == "joint spans" else {}), ()
    if kind == "pretrainer":
        words = {"masked_lm_ids": np.full((ROWS, 2), 7, "int32"), "masked_lm_weights": np.ones((ROWS, 2), "float32")}
        return words | {"next_sentence_labels": classes[:, None].astype("int32")}, ()
    if "embedder" in kind:
        return {}, (np.random.default_rng(1).normal(size=(ROWS, 16)).astype("float32"),)
    return {}, (classes.astype("float32" if kind == "regressor" else "int32"),)


# Functions run in graphs, which for ten steps and more take less time than to run all eagerly.
graphs = partial(functions_run, eagerly=False)


def write_model(folder, model, tokenizer, **task):
    """Writes a model folder; returns it."""
    save_keras(model, folder / "model.keras")
    tokenizer.save(folder)
    if task:
        (folder / "task.json").write_text(json.dumps(task))
    return folder


def table(text):
    """The rows of a table in text, whose columns `|` separates."""
    return [[cell.strip() for cell in row.split(" |")] for row in text.strip().splitlines()]


def numbers(value):
    return keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))


def values_of(model):
    return {name: keras.ops.convert_to_numpy(value) for name, value in named_variables(model).items()}


def assert_same_weights(one, other):
    """Equal to the bit, by name."""
    assert_alike(values_of(one), values_of(other), atol=0)


def assert_alike(found, expected, atol=1e-5):
    """Equal arrays in equal structures; to the bit where the tolerance is 0."""
    found, expected = (keras.tree.map_structure(numbers, one) for one in (found, expected))
    keras.tree.assert_same_structure(found, expected)
    for (path, ours), theirs in zip(keras.tree.flatten_with_path(found), keras.tree.flatten(expected)):
        np.testing.assert_allclose(ours, theirs, atol=atol, rtol=min(atol, 1e-7), err_msg=str(path))


def assert_same_answers(one, other, features=None, atol=1e-5):
    features = batch() if features is None else features
    assert_alike(one(features), other(features), atol)
