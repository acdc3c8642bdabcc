"""Keras's losses and metrics by name read logits, weights count or are refused by name, and losses on pairs."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertRegressor, AlbertSentenceEmbedder, PairTrainer
from albert_tf.choices import PAIR_LOSSES
from albert_tf.models.pair_losses import LOSSES, PairLoss
from albert_tf.models.text_student import TextStudent
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.tiny import CHOICES, CLASSES, KINDS, LENGTH, ROWS, assert_alike, batch, labels, small
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
NUMBERS = np.arange(ROWS) % 2
ONE_HOT = np.eye(CLASSES)[np.arange(ROWS) % CLASSES]
SEVERAL = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]], "float32")
TAGS = np.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % CLASSES
MODELS = {
    "several": partial(AlbertClassifier, num_classes=CLASSES, multi_label=True),
    "one": partial(AlbertClassifier, num_classes=1),
    "bounded": partial(AlbertRegressor, activation="sigmoid"),
} | {kind: partial(KINDS[kind]) for kind in ("classifier", "regressor", "tagger", "choices")}


def made(kind):
    options = {"dropout": 0.0} if kind in MODELS else {}
    return filled({**KINDS, **MODELS}[kind](CONFIG, **options))


def probabilities(model, kind):
    logits = model(batch(kind))
    if kind == "bounded":
        return logits
    return (keras.ops.softmax if kind in ("classifier", "tagger", "choices") else keras.ops.sigmoid)(logits)


# A model, its labels, and names of Keras of a loss and of metrics.
BY_NAME = [
    ("classifier", NUMBERS, "sparse_categorical_crossentropy", ["sparse_categorical_crossentropy", "accuracy"]),
    ("classifier", NUMBERS, keras.losses.sparse_categorical_crossentropy, [keras.metrics.SparseCategoricalAccuracy]),
    ("classifier", ONE_HOT, "categorical_crossentropy", ["CategoricalCrossentropy", "categorical_accuracy"]),
    ("classifier", ONE_HOT, "CategoricalFocalCrossentropy", []),
    ("tagger", TAGS, "SparseCategoricalCrossentropy", ["accuracy"]),
    ("choices", np.arange(ROWS) % CHOICES, "sparse_categorical_crossentropy", ["accuracy"]),
    ("several", SEVERAL, "binary_crossentropy", ["bce", "binary_accuracy", "AUC", "Precision", "true_positives"]),
    ("several", SEVERAL, ["bce"], [keras.metrics.binary_accuracy, "BinaryIoU"]),
    ("one", NUMBERS[:, None], keras.losses.BinaryFocalCrossentropy, ["accuracy", "auc"]),
    ("regressor", NUMBERS[:, None], "binary_crossentropy", ["accuracy", "recall"]),
    ("regressor", NUMBERS[:, None], "mse", ["mae"]),
    ("bounded", NUMBERS[:, None], "binary_crossentropy", ["accuracy", "binary_crossentropy"]),
]


@pytest.mark.parametrize("kind, targets, loss, metrics", BY_NAME)
def test_names_of_losses_and_metrics_mean_what_keras_computes_of_the_probabilities(kind, targets, loss, metrics):
    model = made(kind)
    model.compile("sgd", loss=loss, weighted_metrics=metrics)
    found = model.test_on_batch(batch(kind), targets, return_dict=True)
    outputs = model(batch(kind)) if loss == "mse" else probabilities(model, kind)
    by_keras = keras.Sequential([keras.layers.Identity()])
    by_keras.compile("sgd", loss=loss[0] if isinstance(loss, list) else loss, weighted_metrics=metrics)
    expected = by_keras.test_on_batch(np.asarray(outputs), targets, return_dict=True)
    # Keras cuts probabilities at 1e-7, and reads the area under a curve from 200 of them.
    assert_alike(list(found.values()), list(expected.values()), atol=1e-3)


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("classifier", {"loss": "crossentropy"}, "'crossentropy' reads probabilities.*give sparse_categorical"),
        ("classifier", {"loss": "kld"}, "'kld' reads probabilities"),
        ("tagger", {"loss": keras.losses.poisson}, "reads probabilities"),
        ("several", {"loss": "Dice"}, "'Dice' reads probabilities"),
        ("choices", {"loss": keras.losses.CategoricalCrossentropy()}, "CategoricalCrossentropy.*from_logits=True"),
        ("regressor", {"loss": keras.losses.BinaryCrossentropy()}, "BinaryCrossentropy.*from_logits=True"),
        ("classifier", {"metrics": ["AUC"]}, "'AUC' reads probabilities"),
        ("classifier", {"weighted_metrics": ["precision"]}, "'precision' reads probabilities"),
        ("several", {"metrics": [keras.metrics.AUC()]}, "AUC.*from_logits=True"),
        ("spans", {"loss": "mse"}, "an AlbertSpanPredictor has its own loss and metrics; leave out loss"),
        ("pretrainer", {"metrics": ["accuracy"]}, "an AlbertPretrainer has its own .*leave out metrics"),
    ],
)
def test_what_would_be_computed_of_something_else_is_refused(kind, options, message):
    with refused(message):
        made(kind).compile("sgd", **options)


def trainers():
    embedder = AlbertSentenceEmbedder(CONFIG)
    student = TextStudent(embedder, {"vectors": 1.0})
    student.learn_from(AlbertSentenceEmbedder(CONFIG), [])
    own = {kind: made(kind) for kind in ("spans", "joint spans", "pretrainer")}
    return own | {"student": student, "pairs": PairTrainer(embedder)}


def test_models_with_a_loss_of_their_own_refuse_weights():
    for kind, model in trainers().items():
        model.compile("sgd")
        features = batch("pretrainer" if kind == "pretrainer" else "encoder") | labels(kind)[0]
        for run in (model.fit, model.evaluate):
            with refused("has its own loss, which reads no sample_weight"):
                run(features, sample_weight=np.ones(ROWS), verbose=0)
        with refused("has its own loss, which reads no sample_weight"):
            model.fit(tf.data.Dataset.from_tensors((features, np.zeros(ROWS), np.ones(ROWS))), verbose=0)
        with refused(f"class_weight is for an AlbertClassifier.*not for this {type(model).__name__}"):
            model.fit(features, class_weight={0: 1.0}, verbose=0)


WEIGHTS = np.array([0.0, 3.0, 1.0, 0.5])
OF_ROWS = {
    "classifier": NUMBERS,
    "regressor": NUMBERS,
    "choices": NUMBERS,
    "several": SEVERAL,
    "embedder": labels("embedder")[1][0],
}


@pytest.mark.parametrize("kind", OF_ROWS)
def test_the_loss_is_the_weighted_mean_of_the_rows_losses(kind):
    model = made(kind)
    model.compile("sgd", **({"loss": "mse"} if kind == "embedder" else {}))
    rows = [{name: value[[n]] for name, value in batch(kind).items()} for n in range(ROWS)]
    alone = [model.evaluate(row, OF_ROWS[kind][[n]], verbose=0, return_dict=True)["loss"] for n, row in enumerate(rows)]
    for shape in ((ROWS,), (ROWS, 1)):
        weights = WEIGHTS.reshape(shape)
        found = model.evaluate(batch(kind), OF_ROWS[kind], sample_weight=weights, verbose=0, return_dict=True)["loss"]
        assert found == pytest.approx(np.mean(WEIGHTS * alone), rel=1e-4)
    with refused(r"sample_weight has 2 axes; give a number for each row, \[batch\]"):
        model.train_on_batch(batch(kind), OF_ROWS[kind], np.ones((ROWS, ROWS)))


@pytest.mark.parametrize("shape", [(LENGTH,), (LENGTH, 1), (LENGTH, LENGTH, 2)])
def test_a_taggers_weights_are_of_tokens_also_where_rows_are_as_many(shape):
    model = made("tagger")
    model.compile("sgd")
    features, tags = {name: np.tile(value, (2, 1)) for name, value in batch().items()}, np.tile(TAGS, (2, 1))
    with refused(r"sample_weight has \d axes; give a number for each token, \[batch, sequence\]"):
        model.fit(features, tags, sample_weight=np.ones(shape), verbose=0)


def test_class_weights_are_those_of_the_labels_classes_and_1_where_missing():
    model, features = made("classifier"), batch()
    model.compile(keras.optimizers.SGD(0.0))
    by_hand = model.evaluate(features, NUMBERS, sample_weight=np.array([2.0, 1.0])[NUMBERS], verbose=0)[0]
    dataset = tf.data.Dataset.from_tensors((features, NUMBERS))
    for given in ((features, NUMBERS), (dataset,)):
        found = model.fit(*given, class_weight={0: 2.0}, verbose=0).history["loss"][0]
        assert found == pytest.approx(by_hand, rel=1e-5)
    model.reset_metrics()
    assert model.train_on_batch(features, NUMBERS, class_weight={0: 2.0})[0] == pytest.approx(by_hand, rel=1e-5)
    for wrong in ({3: 2.0}, {"fine": 2.0}, [1.0, 2.0, 1.0]):
        with refused("^class_weight=.*give a dict from classes, 0 to 2, to weights"):
            model.fit(features, NUMBERS, class_weight=wrong, verbose=0)
    one = made("one")
    one.compile("sgd", loss="bce")
    one.fit(features, NUMBERS, class_weight={1: 5.0}, verbose=0)


# Losses on pairs: values and gradients of sentence-transformers 6.2. (In parts: test_steps.py.)
RANDOM = np.random.default_rng(0)
# Of each row's anchor, positive and two negatives.
VECTORS = RANDOM.normal(size=(6, 4, 8)).astype("float32")
SCORES = RANDOM.integers(0, 4, 6).astype("float32")
TAUGHT = RANDOM.normal(size=(6, 4, 8)).astype("float32")
# By case: the loss, the texts of a row, the targets; their loss, and the sum of its
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
    targets, vectors = None if targets is None else targets.reshape(6, -1), tf.Variable(VECTORS)
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
