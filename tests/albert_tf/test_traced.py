"""Whatever changes what layers compute after a function was traced, every answer is that of the model as it is now."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder
from albert_tf.base.model import has_adapters, traced_functions
from albert_tf.loaded import Loaded
from tests.albert_tf.refusals import refused
from tests.albert_tf.search_model import CONFIG, PIECES
from tests.albert_tf.tiny import KINDS, randomise
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

TEXTS = ["a good film", "the plot was dull", "bad"]
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode())
X = Loaded(AlbertEncoder(CONFIG), TOKENIZER, {}).preprocessor()(TEXTS)
# What a loaded model answers, to compare with the model's output; the loss, and labels for it.
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
HEADS = {
    "classifier": (
        lambda loaded: np.log([list(answer["probabilities"].values()) for answer in loaded.predict(TEXTS)]),
        keras.ops.log_softmax,
        (CROSS_ENTROPY, np.array([0, 1, 2])),
    ),
    "embedder": (lambda loaded: loaded.encode(TEXTS), np.asarray, ("mse", np.eye(3, 16))),
    "regressor": (lambda loaded: np.array(loaded.predict(TEXTS))[:, None], np.asarray, ("mse", np.ones((3, 1)))),
}


def made(kind="classifier", **options):
    keras.utils.set_random_seed(3)
    return randomise(KINDS[kind](CONFIG, **options))


def fit(model, kind="classifier"):
    (loss, labels), before = HEADS[kind][2], tf.config.functions_run_eagerly()
    model.compile(keras.optimizers.Adam(0.05), loss)
    tf.config.run_functions_eagerly(True)
    model.fit(X, labels, verbose=0)
    tf.config.run_functions_eagerly(before)


def change(model, what, kind, path):
    """Returns the model of after the change."""
    if what == "adapters":
        model.encoder.merge_lora() if has_adapters(model) else model.encoder.enable_lora(2)
    elif what == "freeze":
        model.encoder.trainable = not model.encoder.trainable
    elif what == "fit":
        fit(model, kind)
    elif what == "save":
        model.save(path / "model.keras")
        return keras.saving.load_model(path / "model.keras")
    return model


@pytest.mark.parametrize("kind, seed", [(kind, seed) for seed in range(3) for kind in HEADS])
@pytest.mark.few(3)
def test_after_any_sequence_of_changes_answers_are_those_of_the_model(kind, seed, tmp_path):
    random, model, (ask, scaled, _) = np.random.default_rng(seed), made(kind), HEADS[kind]
    changes = ["adapters", "fit", "adapters", "fit"]
    for what in random.choice(["freeze", "save"], 2):
        changes.insert(random.integers(len(changes)), str(what))
    loaded, done = Loaded(model, TOKENIZER, {}), []
    for what in ["nothing", *changes]:
        done.append(what)
        if (changed := change(model, what, kind, tmp_path)) is not model:
            model, loaded = changed, Loaded(changed, TOKENIZER, {})
        right = model(X)
        assert_allclose(model.predict(X, verbose=0), right, atol=1e-5, err_msg=f"predict after {done}")
        assert_allclose(ask(loaded), scaled(right), atol=1e-5, err_msg=f"a loaded model after {done}")


CHANGES = {
    "adapters": lambda model: model.encoder.enable_lora(2),
    "a frozen layer": lambda model: setattr(model.encoder.embeddings, "trainable", False),
    "a frozen weight": lambda model: setattr(model.encoder.embeddings.word_embeddings, "trainable", False),
    "a dtype": lambda model: setattr(model.head, "dtype_policy", "float64"),
    "a rate": lambda model: setattr(model.dropout, "rate", 0.5),
    "a function": lambda model: setattr(model.head, "activation", keras.activations.relu),
    "a configuration": lambda model: setattr(model.encoder, "config", CONFIG.replace(hidden_act="relu")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_makes_functions_anew(what):
    model = made()
    model(X)
    traced_functions(model)["one"], model.predict_function = len, len
    CHANGES[what](model)
    assert not traced_functions(model) and model.predict_function is None


def test_fit_trains_what_is_to_train_now():
    model, labels = made(), HEADS["classifier"][2][1]
    model.compile(keras.optimizers.Adam(0.05), CROSS_ENTROPY)
    model.fit(X, labels, verbose=0)
    model.encoder.trainable = False
    before = model.encoder.get_weights()
    head = np.array(model.head.kernel)
    model.fit(X, labels, verbose=0)
    for then, now in zip(before, model.encoder.get_weights(), strict=True):
        assert_allclose(now, then, atol=0)
    assert np.abs(np.array(model.head.kernel) - head).max() > 1e-3
    model.encoder.enable_lora(2)
    with refused(r"other weights train than at the last compile; call compile\(\)"):
        model.fit(X, labels, verbose=0)


SHAPES = {
    "classifier": ([8, 1, 6], [8, 6, 1], [6]),
    "tagger": ([8, 1, 6], [8, 6, 1], [6]),
    "choices": ([8, 6], [8, 1, 2, 6]),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.usefixtures("eagerly")
def test_ids_of_other_axes_are_refused(kind):
    model = made(kind)
    for shape in SHAPES[kind]:
        for call in (model, lambda ids: model.predict(ids, verbose=0)):
            with refused(r"input_ids: the shape is \(.*give \[batch, (choices, )?sequence\]"):
                call(np.ones(shape, "int32"))
    ids = np.ones([8, 2, 6] if kind == "choices" else [8, 6], "int32")
    with refused(r"input_mask: the shape is \(8,.* 1\), that of input_ids \(8,"):
        model({"input_ids": ids, "input_mask": ids[..., :1]})
