"""Whatever changes what layers compute after a function was traced, every answer is that of the model as it is now."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertSentenceEmbedder
from albert_tf.base.model import has_adapters
from albert_tf.base.traced import traced_functions
from albert_tf.loaded import Loaded
from tests.albert_tf.refusals import refused
from tests.albert_tf.search_model import CONFIG, PIECES
from tests.albert_tf.tiny import KINDS, assert_alike, batch, randomise
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


def test_adapters_merged_and_added_again_are_other_weights():
    model = made()
    model.encoder.enable_lora(2)
    traced_functions(model)["one"] = len
    model.encoder.merge_lora()
    model.encoder.enable_lora(2)
    assert not traced_functions(model)


@pytest.mark.usefixtures("eagerly")
def test_what_changes_no_layer_keeps_the_functions(tmp_path):
    model = made()
    model(X)
    traced_functions(model)["one"] = len
    model.compile("adam", CROSS_ENTROPY)
    for _ in range(2):
        model.fit(
            X, HEADS["classifier"][2][1], verbose=0, callbacks=[keras.callbacks.EarlyStopping("loss", patience=0)]
        )
        model.evaluate(X, HEADS["classifier"][2][1], verbose=0)
    model.predict(X, verbose=0)
    model.save(tmp_path / "model.keras")
    model.set_weights(made().get_weights())
    assert "one" in traced_functions(model)


def test_functions_of_the_caller_do_not_add_merged_adapters_twice():
    model = made()
    model.encoder.enable_lora(2)
    fit(model)
    function = tf.function(lambda features: model(features), autograph=False)
    right = np.array(function(X))
    model.encoder.merge_lora()
    assert_allclose(function(X), right, atol=1e-5)


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


@pytest.mark.parametrize("how", ["encoder", "constructor", "embeddings"])
@pytest.mark.usefixtures("eagerly")
def test_adapters_of_a_frozen_encoder_train(how):
    encoder = AlbertEncoder(CONFIG, trainable=how != "constructor")
    model = AlbertClassifier(encoder, 3)
    if how != "constructor":
        (encoder if how == "encoder" else encoder.embeddings).trainable = False
    encoder.enable_lora(2)
    assert len(model.trainable_variables) == len(AlbertClassifier(CONFIG, 3).head.weights) + 4
    before = [np.array(one) for one in encoder.trainable_variables]
    fit(model)
    fit(model)
    assert all(np.abs(now - then).max() > 1e-3 for now, then in zip(map(np.array, encoder.trainable_variables), before))
    encoder.merge_lora()
    assert len(encoder.trainable_variables) == len(encoder.weights)


@keras.saving.register_keras_serializable("tests")
class Around(keras.Model):
    """What a user writes around a model that has features by name, or ids alone."""

    def __init__(self, is_named=True, **options):
        super().__init__(**options)
        self.inner, self.outer, self.is_named = AlbertSentenceEmbedder(CONFIG), keras.layers.Dense(3), is_named

    def call(self, features, training=False):
        return self.outer(self.inner(features, training=training))

    def get_config(self):
        return super().get_config() | {"is_named": self.is_named}


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.few(1)
@pytest.mark.usefixtures("eagerly")
def test_a_model_around_ours_goes_on_from_a_file_with_its_head(is_named, tmp_path):
    features, labels, model = X if is_named else X["input_ids"], HEADS["classifier"][2][1], Around(is_named)
    model.compile("adam", CROSS_ENTROPY)
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    model.fit(features, labels, verbose=0, callbacks=[checkpoint])
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_allclose(again(features), model(features), atol=1e-6)
    for one in (model, again):
        one.train_on_batch(features, labels)
    assert_allclose(again(features), model(features), atol=1e-6)


@pytest.mark.parametrize("kind", ["encoder", "choices", "pretrainer"])
@pytest.mark.usefixtures("eagerly")
def test_a_functional_model_is_made_of_input_and_output(kind):
    model = made(kind)
    features = {name: values % len(PIECES) for name, values in batch(kind).items() if name in model.feature_names}
    assert_alike(keras.Model(model.input, model.output)(features), model(features))


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


@pytest.mark.usefixtures("eagerly")
def test_ids_that_are_floats_are_refused():
    with refused("input_ids: float32 is not read; give whole numbers, such as int32"):
        made("encoder")(X["input_ids"] / 2)
