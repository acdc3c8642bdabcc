"""Replaced-token detection: against NumPy, and what must hold whatever the generator draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from albert_tf import AlbertEncoder, AlbertPretrainer, ElectraPretrainer
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.variables import named_variables
from albert_tf.training.start import copy_weights
from tests.albert_tf.depth_cases import small
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(num_hidden_layers=3, num_attention_heads=4, initializer_range=0.3)
SELF = {"generator_steps": 1}


# Two masked words in the first row and one in the other, whose second place is padding and holds position 0.
RNG = np.random.default_rng(0)
FEATURES = {
    "input_ids": RNG.integers(0, 40, (2, 6)).astype("int32"),
    "input_mask": (np.arange(6) < np.array([[6], [4]])).astype("int32"),
    "masked_lm_positions": np.array([[1, 3], [1, 0]], "int32"),
    "masked_lm_weights": np.array([[1, 1], [1, 0]], "float32"),
    "masked_lm_ids": RNG.integers(0, 40, (2, 2)).astype("int32"),
    "next_sentence_labels": np.array([[0], [1]], "int32"),
}
IS_REAL = FEATURES["input_mask"] > 0


def cross_entropy(logits, labels):
    odds = np.exp(logits.astype("float64"))
    return -np.log(np.take_along_axis(odds / odds.sum(-1, keepdims=True), labels[..., None], -1)[..., 0])


@pytest.mark.parametrize("changes", [{}, SELF, {"pair_task": "sop"}])
def test_the_loss_is_that_of_the_formulas(changes):
    model, x = ElectraPretrainer(CONFIG, replaced_weight=7.0, **changes), FEATURES
    predictions = {name: ops.convert_to_numpy(value) for name, value in model(x, training=True).items()}
    nll = cross_entropy(predictions["masked_lm_logits"], x["masked_lm_ids"])
    expected = (nll * x["masked_lm_weights"]).sum() / 3
    detected, is_replaced = predictions["replaced_logits"], predictions["is_replaced"]
    yes = 1 / (1 + np.exp(-detected.astype("float64")))
    expected -= 7 * np.where(is_replaced > 0, np.log(yes), np.log(1 - yes))[IS_REAL].mean()
    if "pair_task" in changes:
        expected += cross_entropy(predictions["pair_logits"], x["next_sentence_labels"][:, 0]).mean()
    assert float(model.compute_loss(x, None, predictions)) == pytest.approx(expected, abs=1e-4)
    figures = model.compute_metrics(x, None, predictions)
    assert float(figures["loss"]) == pytest.approx(expected, abs=1e-3)
    accuracy = ((detected > 0) == (is_replaced > 0))[IS_REAL].mean()
    assert float(figures["replaced_token_accuracy"]) == pytest.approx(accuracy)
    assert float(figures["replaced_token_share"]) == pytest.approx(is_replaced[IS_REAL].mean())


@pytest.fixture
def given(monkeypatch):
    """What the model's encoder is given at each call."""
    found, call = [], AlbertEncoder.call

    def notes(self, features, **others):
        found.append(np.array(features["input_ids"]))
        return call(self, features, **others)

    monkeypatch.setattr(AlbertEncoder, "call", notes)
    return found


@pytest.mark.parametrize("changes", [{}, SELF])
def test_only_masked_words_are_drawn_and_a_right_guess_is_the_text_s_own(changes, given):
    """The generator's bias makes it all but sure of one word, which is the true one of the first row's first place."""
    model = ElectraPretrainer(CONFIG, **changes)
    model.masked_lm_head.output_bias.assign(np.eye(40)[9] * 1000)
    outputs = model(FEATURES | {"masked_lm_ids": np.array([[9, 10], [11, 11]])}, training=True)
    expected = FEATURES["input_ids"].copy()
    expected[0, [1, 3]] = expected[1, 1] = 9
    np.testing.assert_array_equal(given[-1], expected)
    np.testing.assert_array_equal(outputs["is_replaced"], [[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]])


def test_words_are_drawn_by_the_generator_s_shares(given):
    """A thousand rows of the same word: how often each is drawn, within four standard errors."""
    x = {name: np.repeat(value[:1], 1000, axis=0) for name, value in FEATURES.items()}
    model = ElectraPretrainer(CONFIG, seed=3)
    shares = keras.ops.convert_to_numpy(keras.ops.softmax(model(x)["masked_lm_logits"][0, 0]))
    drawn, again = (model(x, training=True) and given[-1][:, 1] for _ in range(2))
    counts = np.bincount(drawn, minlength=40)
    assert (np.abs(counts - 1000 * shares) < 4.5 * np.sqrt(1000 * shares) + 1).all()
    assert (again != drawn).any()  # The next step draws anew; evaluation does not.
    np.testing.assert_array_equal(model(FEATURES)["is_replaced"], model(FEATURES)["is_replaced"])


def gradients(model, part):
    """The names of the weights that have one, of one part of the loss."""
    with tf.GradientTape() as tape:
        outputs = model(FEATURES, training=True)
        loss = AlbertPretrainer.compute_loss(model, FEATURES, None, outputs)
        if part == "detection":
            loss = model.compute_loss(FEATURES, None, outputs) - loss
    variables = named_variables(model)
    found = tape.gradient(loss, [variable.value for variable in variables.values()])
    found = [0.0 if one is None else np.abs(tf.convert_to_tensor(one)).max() for one in found]
    return {name for name, largest in zip(variables, found, strict=True) if largest > 1e-7}


def test_no_gradient_passes_through_the_draw():
    model = ElectraPretrainer(CONFIG)
    detection, words = (gradients(model, part) for part in ("detection", "words"))
    assert not [name for name in detection if name.startswith(("generator/", "masked_lm/"))]
    assert {"attention_0/query/kernel", "replaced/head/kernel", "embeddings/word_embeddings"} <= detection
    assert {"generator/block_0/attention/value/kernel", "masked_lm/dense/kernel"} <= words
    assert not [name for name in words if name.startswith(("attention_0", "replaced/"))]
    # The tables are in both; the projections are each one's own.
    assert "embeddings/word_embeddings" in words and "embeddings/projection/kernel" not in words


def test_the_model_itself_is_the_generator_after_so_many_steps():
    model = ElectraPretrainer(CONFIG, **SELF)
    x = {name: FEATURES[name] for name in ("input_ids", "input_mask")}
    expected = model.masked_lm_head(model.encoder(x)["hidden_states"][1])
    np.testing.assert_allclose(model(x)["masked_lm_logits"], expected, atol=1e-5)


def test_a_generator_has_its_width_and_the_model_s_tables():
    model = ElectraPretrainer(AlbertEncoder(CONFIG, seed=3), generator_size=0.5)
    assert model.generator.config.hidden_size == 8 and model.generator.config.num_attention_heads == 2
    assert model.generator.embeddings.projection is None  # 8 wide as the tables are.
    assert not model.generator.embeddings.variables
    ids = {id(variable) for variable in model.encoder.variables}
    assert not [variable for variable in model.generator.variables if id(variable) in ids]
    # Its dropout hides something else.
    assert model.generator.seed != model.encoder.seed


def test_other_formats_hold_its_encoder_and_it_starts_another(tmp_path):
    model = ElectraPretrainer(CONFIG)
    formats.save(model, tmp_path, "huggingface")
    found = formats.load(tmp_path)
    assert isinstance(found, AlbertEncoder)
    outputs = (one(FEATURES["input_ids"])["sequence_output"] for one in (found, model.encoder))
    np.testing.assert_allclose(*outputs, atol=1e-5)
    assert not copy_weights(model, ElectraPretrainer(CONFIG))


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ({}, {"generator_size": 1.5}, "generator_size 1.5 must be above 0 and at most 1"),
        ({}, {"generator_steps": 4}, "generator_steps 4 is more than the model's 3 steps"),
        ({"factorization": "word"}, {}, "factorization 'word' has tables of hidden_size"),
        ({"halting": "act"}, SELF, "needs fixed steps"),
    ],
)
def test_what_cannot_be_is_said(config, arguments, message):
    with pytest.raises(UserError, match=message):
        ElectraPretrainer(CONFIG.replace(**config), **arguments)
