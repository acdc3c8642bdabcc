"""Losses of every kind, on rows of uneven length, in one part and in several: run under TensorFlow and under JAX."""

import functools
import sys

import keras
import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import (
    AlbertClassifier,
    AlbertMultipleChoice,
    AlbertPretrainer,
    AlbertRegressor,
    AlbertSentenceEmbedder,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
)
from albert_tf.models.pair_losses import PairLoss
from albert_tf.models.pair_trainer import PairTrainer
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.models.text_student import TextStudent
from albert_tf.training.distillation import distil
from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.training import make_steps
from tests.albert_tf.tiny import small

# Without dropout, whose masks depend on the shape of a part.
PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIG = small(num_hidden_layers=1, initializer_range=0.2, **PLAIN)
# What leaves early has a layer to leave at.
DEEP = CONFIG.replace(num_hidden_layers=2)
HALTING = DEEP.replace(halting="act", ponder_cost=0.5, gate_init=0.5)
RELATIVE = CONFIG.replace(position_type="relative", type_vocab_size=4)
ROWS, LENGTH = 8, 10
RANDOM = np.random.default_rng(0)
LENGTHS = np.array([2, 3, 5, 4, 9, 10, 3, 10])
MASK = (np.arange(LENGTH) < LENGTHS[:, None]).astype("int32")
IDS = RANDOM.integers(5, 40, (ROWS, LENGTH)).astype("int32") * MASK
X = {"input_ids": IDS, "input_mask": MASK, "segment_ids": MASK}
CLASSES = (np.arange(ROWS) % 3).astype("int32")
WEIGHTS = np.array([0, 1, 3, 0.5, 2, 2, 0.1, 1], "float32")
TAGS = (IDS % 4, MASK.astype("float32"))
# Of so many words a row, of which the last two have none.
PREDICTED = np.array([1, 1, 4, 3, 1, 4, 0, 0])
WORDS = X | {
    "masked_lm_positions": np.tile(np.arange(1, 5), (ROWS, 1)).astype("int32"),
    "masked_lm_ids": IDS[:, 1:5],
    "masked_lm_weights": (np.arange(4) < PREDICTED[:, None]).astype("float32"),
}
PAIRS = WORDS | {"next_sentence_labels": (CLASSES[:, None] > 0).astype("int32")}
PACKED = WORDS | {
    "sequence_ids": (np.arange(LENGTH) >= 4) * np.ones((ROWS, 1), "int32"),
    "sequence_starts": np.tile([[0, 4]], (ROWS, 1)).astype("int32"),
    "next_sentence_labels": np.tile([[0, 1]], (ROWS, 1)).astype("int32"),
    "pair_weights": np.stack([np.ones(ROWS), LENGTHS > 4], axis=1).astype("float32"),
}
SPANS = X | {name: (CLASSES % 2).astype("int32") for name in ("start_positions", "end_positions")}
SPANS["is_impossible"] = (CLASSES > 1).astype("int32")
CHOICES = {name: np.stack([value, value[::-1]], axis=1) for name, value in X.items()}
TEXT_PAIRS = X | {
    f"document_{name}": np.stack([value[::-1], value[[3, 4, 5, 6, 7, 0, 1, 2]]], axis=1) for name, value in X.items()
}
SCORED = TEXT_PAIRS | {"targets": np.array([[3, 1, 4, 1, 5, 9, 2, 6]], "float32").T}
VECTORS = RANDOM.normal(size=(ROWS, 16)).astype("float32")


def classifier(config=None, **options):
    return AlbertClassifier(config or CONFIG, 3, dropout=0.0, **options)


def tagger(config=None, **options):
    return AlbertTokenClassifier(config or CONFIG, 4, dropout=0.0, **options)


def distilled(make):
    def student():
        model = make()
        model.compile()
        distil(model, make(), 0.3, 2.0)
        return model

    return student


def regularized():
    model = classifier()
    model.head._kernel.regularizer = keras.regularizers.L2(0.5)
    return model


def student():
    model = TextStudent(
        AlbertPretrainer(CONFIG, pair_task=None), {"vectors": 1.0, "similarities": 10.0, "states": 1.0, "words": 1.0}
    )
    model.learn_from(AlbertPretrainer(CONFIG, pair_task=None), [0, 1])
    return model


def trainer(loss):
    return lambda: PairTrainer(AlbertSentenceEmbedder(CONFIG), loss)


def sums():
    model = classifier()
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))
    return model


# By the kind of loss: the model, and a batch.
KINDS = {
    "tags": (tagger, (X, *TAGS)),
    "words and pairs": (lambda: AlbertPretrainer(CONFIG), (PAIRS,)),
    "packed": (lambda: AlbertPretrainer(CONFIG), (PACKED,)),
    "words, halting": (lambda: AlbertPretrainer(HALTING, pair_task=None), (WORDS,)),
    "permutation": (lambda: XlnetPretrainer(RELATIVE), (WORDS,)),
    "classes": (classifier, (X, CLASSES)),
    "class weights": (classifier, (X, CLASSES, WEIGHTS)),
    "regularized": (regularized, (X, CLASSES)),
    "sum": (sums, (X, CLASSES)),
    "early exit": (lambda: classifier(DEEP, early_exit=True), (X, CLASSES, WEIGHTS)),
    "tags, early exit": (lambda: tagger(DEEP, early_exit=True), (X, *TAGS)),
    "distilled": (distilled(classifier), (X, CLASSES, WEIGHTS)),
    "distilled tags": (distilled(tagger), (X, *TAGS)),
    "numbers": (lambda: AlbertRegressor(CONFIG, dropout=0.0), (X, CLASSES.astype("float32"))),
    "choices": (lambda: AlbertMultipleChoice(CONFIG, dropout=0.0), (CHOICES, CLASSES % 2)),
    "spans": (lambda: AlbertSpanPredictor(CONFIG, dropout=0.0), (SPANS,)),
    "joint spans": (lambda: AlbertSpanPredictor(CONFIG, joint=True, dropout=0.0), (SPANS,)),
    "embedder": (lambda: AlbertSentenceEmbedder(CONFIG), (X, VECTORS)),
    "student": (student, (WORDS,)),
    "text pairs": (trainer(PairLoss(symmetric=True, dims=(16, 4))), (TEXT_PAIRS,)),
    "scored text pairs": (trainer(PairLoss("cosent")), (SCORED,)),
    "triplets": (trainer(PairLoss("triplet")), (TEXT_PAIRS,)),
}


def made(kind, optimizer):
    """A model that can be trained, its metrics too."""
    make, batch = KINDS[kind]
    keras.utils.set_random_seed(1)
    model = make()
    losses = {"embedder": lambda: {"loss": "mse"}, "sum": lambda: {"loss": model.loss}}
    model.compile(optimizer=optimizer, **losses.get(kind, dict)())
    optimizer.build(model.trainable_variables)
    few = keras.tree.map_structure(lambda value: value[:1], batch)
    x, y, weight = keras.utils.unpack_x_y_sample_weight(few if len(few) > 1 else few[0])
    predictions = model(x, training=True)
    model.compute_loss(x, y, predictions, weight)
    model.compute_metrics(x, y, predictions, weight)
    model.reset_metrics()
    return model


def dataset_of(batches):
    spec = keras.tree.map_structure(lambda value: tf.TensorSpec([None] * value.ndim, value.dtype), batches[0])
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


def step(kind, parts, devices=None):
    """A step of gradient descent in so many parts.

    Returns:
        The gradients, and the figures.
    """
    devices, batch = devices or Devices(), KINDS[kind][1]
    with devices.scope():
        model = made(kind, keras.optimizers.SGD(1.0))
        before = [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]
        steps = make_steps(model, devices, False, parts)

    def read(shares, workers, worker):
        cuts = np.array_split(np.arange(ROWS), shares * parts)
        pieces = [keras.tree.map_structure(lambda value: value[rows], batch) for rows in cuts]  # noqa: B023
        return dataset_of([piece if len(piece) > 1 else piece[0] for piece in pieces])

    batches = steps.batches(read, training=True)()
    steps.train(*[next(batches) for _ in range(parts)])
    figures = steps.results()
    after = [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]
    return {v.path: old - new for v, old, new in zip(model.trainable_variables, before, after)}, figures


at_once = functools.cache(functools.partial(step, parts=1))


def check(kind, parts, devices=None):
    """Compares a batch in parts, or on devices, with a batch at once."""
    (gradients, figures), (expected, expected_figures) = step(kind, parts, devices), at_once(kind)
    assert max(np.abs(value).max() for value in expected.values()) > 1e-3
    for (path, ours), theirs in zip(gradients.items(), expected.values(), strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=2e-6, err_msg=f"{kind} in {parts}: {path}")
    assert figures.keys() == expected_figures.keys()
    for name, value in figures.items():
        assert_allclose(value, expected_figures[name], rtol=1e-4, atol=1e-6, err_msg=f"{kind}: {name}")


if __name__ == "__main__":
    print("backend:", keras.backend.backend())
    for one in sys.argv[1:] or KINDS:
        check(one, 4)
        print("checked", one, flush=True)
