"""A step of the training loop is that of Keras's `fit`, whatever the head, its loss and its metrics."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor
from albert_tf.optimizers import create_optimizer
from albert_tf.training.devices import Devices
from albert_tf.training.distillation import distil
from albert_tf.training.tensorflow_steps import TensorFlowSteps

CONFIG = AlbertConfig(
    vocab_size=30, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, initializer_range=0.2, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
ROWS = 6
CLASSES = {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy"]}
TAGS = {
    "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
    "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
}


def features(length, seed):
    random = np.random.default_rng(seed)
    ids = random.integers(5, 30, (ROWS, length)).astype("int32")
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": (np.arange(length) > 3) * np.ones_like(ids),
    }


def whole(high, shape, seed):
    return np.random.default_rng(seed).integers(0, high, shape).astype("int32")


def classes(length, seed, weighted=False):
    weights = (np.linspace(0, 2, ROWS).astype("float32"),) if weighted else ()
    return (features(length, seed), whole(3, ROWS, seed), *weights)


def numbers(length, seed):
    return features(length, seed), np.linspace(0, 1, ROWS).astype("float32")


def tags(length, seed):
    return features(length, seed), whole(4, (ROWS, length), seed), whole(2, (ROWS, length), seed)


def spans(length, seed):
    labels = {"start_positions": 4, "end_positions": 5}
    x = features(length, seed) | {name: np.full(ROWS, value, "int32") for name, value in labels.items()}
    return (x | {"is_impossible": whole(2, ROWS, seed)},)


def choices(length, seed):
    x = {name: np.stack([value, value[::-1]], axis=1) for name, value in features(length, seed).items()}
    return x, whole(2, ROWS, seed)


def masked(length, seed):
    words = {"masked_lm_positions": whole(length, (ROWS, 3), seed), "masked_lm_ids": whole(30, (ROWS, 3), seed + 1)}
    words["masked_lm_weights"] = np.ones((ROWS, 3), "float32")
    return (features(length, seed) | words | {"next_sentence_labels": whole(2, (ROWS, 1), seed)},)


def classifier(**options):
    return lambda encoder: AlbertClassifier(encoder, 3, **options)


KINDS = {
    "classes": (classifier(), CLASSES, classes),
    "class weights": (classifier(), CLASSES, lambda *of: classes(*of, weighted=True)),
    "early exit": (classifier(early_exit=True), CLASSES, classes),
    "distilled": (classifier(), CLASSES, classes),
    "distilled early exit": (classifier(early_exit=True), CLASSES, lambda *of: classes(*of, weighted=True)),
    "numbers": (AlbertRegressor, {"loss": "mse"}, numbers),
    "tags": (lambda encoder: albert_tf.AlbertTokenClassifier(encoder, 4), TAGS, tags),
    "spans": (albert_tf.AlbertSpanPredictor, {}, spans),
    "joint spans": (lambda encoder: albert_tf.AlbertSpanPredictor(encoder, joint=True), {}, spans),
    "choices": (albert_tf.AlbertMultipleChoice, CLASSES, choices),
    "pre-training": (albert_tf.AlbertPretrainer, {}, masked),
}


QUICK = ("tags",)


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_steps_are_those_of_fit(kind):
    """On batches of two lengths. Without a graph `fit` takes a tenth of the time."""
    build, compiled, batch = KINDS[kind]
    batches = [batch(length, seed) for seed, length in enumerate((8, 12, 8))]
    spec = tf.nest.map_structure(lambda value: tf.TensorSpec([None] * value.ndim, value.dtype), batches[0])
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    outcomes = []
    for fits in (True, False):
        keras.utils.set_random_seed(1)
        model = build(AlbertEncoder(CONFIG, seed=2))
        model.compile(optimizer=create_optimizer("adamw", 1e-2, 10, 0), run_eagerly=fits, **compiled)
        if kind.startswith("distilled"):
            distil(model, build(AlbertEncoder(CONFIG, seed=7)), 0.3, 2.0)
        if fits:
            figures = {name: values[0] for name, values in model.fit(dataset, verbose=0).history.items()}
        else:
            model.optimizer.build(model.trainable_variables)
            model._symbolic_build(data_batch=batches[0])
            steps = TensorFlowSteps(model, Devices(), jit_compile=False)
            for one in steps.batches(lambda *shares: dataset, training=True)():
                steps.train(one)
            figures = steps.results()
        outcomes.append((figures, model.get_weights()))
    (of_fit, weights), (ours, own_weights) = outcomes
    assert of_fit.keys() == ours.keys() and "loss" in ours
    for name, value in of_fit.items():
        assert value == pytest.approx(ours[name], rel=1e-5), name
    for one, other in zip(weights, own_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=5e-5)  # Adam makes much of rounding where gradients vanish.


def test_what_no_task_trains_is_not_warned_of():
    model = albert_tf.AlbertPretrainer(AlbertEncoder(CONFIG.replace(num_hidden_layers=1)), pair_task=None)
    model.compile(optimizer=create_optimizer("adamw", 1e-2, 10, 0))
    model.optimizer.build(model.trainable_variables)
    before = keras.ops.convert_to_numpy(model.encoder.pooler.kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps = TensorFlowSteps(model, Devices(), jit_compile=False)
        batches = steps.batches(lambda *shares: tf.data.Dataset.from_tensors(masked(8, 0)[0]), training=True)
        steps.train(next(iter(batches())))
    np.testing.assert_array_equal(model.encoder.pooler.kernel, before)
