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


def features_of(seed=0, rows=2, length=6, **changes):
    """Two masked words in the first row and one in the others, whose second place is padding and holds position 0."""
    rng = np.random.default_rng(seed)
    mask, weights = np.ones((rows, length), "int32"), np.ones((rows, 2), "float32")
    mask[1:, length - 2 :], weights[1:, 1] = 0, 0
    positions = np.tile([[1, 3]], (rows, 1)).astype("int32") * (weights > 0)
    return {
        "input_ids": rng.integers(0, 40, (rows, length)).astype("int32"), "input_mask": mask,
        "masked_lm_positions": positions, "masked_lm_weights": weights,
        "masked_lm_ids": rng.integers(0, 40, (rows, 2)).astype("int32"),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)).astype("int32"),
    } | changes  # fmt: skip


@pytest.mark.parametrize("changes", [{}, SELF, {"pair_task": "sop"}])
def test_the_loss_is_that_of_the_formulas(changes):
    model, x = ElectraPretrainer(CONFIG, replaced_weight=7.0, **changes), features_of()
    predictions = {name: ops.convert_to_numpy(value) for name, value in model(x, training=True).items()}
    logits = predictions["masked_lm_logits"].astype("float64")
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    nll = -np.log(np.take_along_axis(shares, x["masked_lm_ids"][..., None], -1))[..., 0]
    expected = (nll * x["masked_lm_weights"]).sum() / 3
    yes = 1 / (1 + np.exp(-predictions["replaced_logits"].astype("float64")))
    per_token = -np.where(predictions["is_replaced"] > 0, np.log(yes), np.log(1 - yes))
    expected += 7 * (per_token * x["input_mask"]).sum() / x["input_mask"].sum()
    if "pair_task" in changes:
        pairs = predictions["pair_logits"].astype("float64")
        pairs = pairs - np.log(np.exp(pairs).sum(-1, keepdims=True))
        expected -= np.take_along_axis(pairs, x["next_sentence_labels"], -1).mean()
    assert float(model.compute_loss(x, None, predictions)) == pytest.approx(expected, abs=1e-4)
    figures = model.compute_metrics(x, None, predictions)
    assert float(figures["loss"]) == pytest.approx(expected, abs=1e-3)
    is_right = (predictions["replaced_logits"] > 0) == (predictions["is_replaced"] > 0)
    assert float(figures["replaced_token_accuracy"]) == pytest.approx(is_right[x["input_mask"] > 0].mean())
    shares = predictions["is_replaced"][x["input_mask"] > 0].mean()
    assert float(figures["replaced_token_share"]) == pytest.approx(shares)


def given_by_the_generator(model, x):
    """What the model's encoder is given."""
    seen, call = [], type(model.encoder).call

    def notes(self, features, **others):
        seen.append(np.array(features["input_ids"]))
        return call(self, features, **others)

    type(model.encoder).call = notes
    try:
        outputs = model(x, training=True)
    finally:
        type(model.encoder).call = call
    return seen[-1], np.array(outputs["is_replaced"])


@pytest.mark.parametrize("changes", [{}, SELF])
def test_only_masked_words_are_drawn_and_a_right_guess_is_the_text_s_own(changes):
    """The generator's bias makes it all but sure of one word, which is the true one of the first row's first place."""
    model, x = ElectraPretrainer(CONFIG, **changes), features_of()
    true = int(x["masked_lm_ids"][0, 0])
    x["masked_lm_ids"][0, 1], x["masked_lm_ids"][1] = (true + 1) % 40, (true + 2) % 40
    bias = np.zeros(40, "float32")
    bias[true] = 1000.0
    model.masked_lm_head.output_bias.assign(bias)
    given, is_replaced = given_by_the_generator(model, x)
    expected = x["input_ids"].copy()
    expected[0, [1, 3]] = expected[1, 1] = true
    np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(is_replaced, [[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]])


def test_words_are_drawn_by_the_generator_s_shares():
    """A thousand rows of the same word: how often each is drawn, within four standard errors."""
    x = features_of(rows=1)
    x = {name: np.repeat(value, 1000, axis=0) for name, value in x.items()}
    model = ElectraPretrainer(CONFIG, seed=3)
    shares = keras.ops.convert_to_numpy(keras.ops.softmax(model(x)["masked_lm_logits"][0, 0]))
    drawn, _ = given_by_the_generator(model, x)
    counts = np.bincount(drawn[:, 1], minlength=40)
    assert (np.abs(counts - 1000 * shares) < 4.5 * np.sqrt(1000 * shares) + 1).all()
    again, _ = given_by_the_generator(model, x)
    assert (again[:, 1] != drawn[:, 1]).any()  # The next step draws anew; evaluation does not.
    np.testing.assert_array_equal(model(x)["is_replaced"], model(x)["is_replaced"])


def gradients(model, x, part):
    """By variable name, of one part of the loss."""
    with tf.GradientTape() as tape:
        outputs = model(x, training=True)
        loss = model.compute_loss(x, None, outputs)
        if part == "detection":
            rest = AlbertPretrainer.compute_loss(model, x, None, outputs)
            loss = loss - rest
        else:
            loss = AlbertPretrainer.compute_loss(model, x, None, outputs)
    variables = named_variables(model)
    found = tape.gradient(loss, [variable.value for variable in variables.values()])
    return {name for name, one in zip(variables, found)
            if one is not None and float(tf.reduce_max(tf.abs(tf.convert_to_tensor(one)))) > 1e-7}  # fmt: skip


def test_no_gradient_passes_through_the_draw():
    model, x = ElectraPretrainer(CONFIG), features_of()
    detection, words = gradients(model, x, "detection"), gradients(model, x, "words")
    assert not [name for name in detection if name.startswith(("generator/", "masked_lm/"))]
    assert {"attention_0/query/kernel", "replaced/head/kernel", "embeddings/word_embeddings"} <= detection
    assert {"generator/block_0/attention/value/kernel", "masked_lm/dense/kernel"} <= words
    assert not [name for name in words if name.startswith(("attention_0", "replaced/"))]
    # The tables are in both; the projections are each one's own.
    assert "embeddings/word_embeddings" in words and "embeddings/projection/kernel" not in words


def test_the_model_itself_is_the_generator_after_so_many_steps():
    model, x = ElectraPretrainer(CONFIG, **SELF), features_of()
    x = {name: x[name] for name in ("input_ids", "input_mask")}
    expected = model.masked_lm_head(model.encoder(x)["hidden_states"][1])
    np.testing.assert_allclose(model(x)["masked_lm_logits"], expected, atol=1e-5)


def test_a_generator_has_its_width_and_the_model_s_tables():
    model = ElectraPretrainer(CONFIG, generator_size=0.5)
    assert model.generator.config.hidden_size == 8 and model.generator.config.num_attention_heads == 2
    assert model.generator.embeddings.projection is None  # 8 wide as the tables are.
    assert not model.generator.embeddings.variables
    ids = {id(variable) for variable in model.encoder.variables}
    assert not [variable for variable in model.generator.variables if id(variable) in ids]


@pytest.mark.parametrize("changes", [SELF, {"pair_task": "nsp", "generator_size": 0.5}])
def test_a_file_holds_it(changes, tmp_path):
    model, x = ElectraPretrainer(CONFIG, **changes), features_of()
    model.save(tmp_path / "model.keras")
    loaded = formats.load(tmp_path / "model.keras")
    for name, value in model(x).items():
        np.testing.assert_array_equal(loaded(x)[name], value)
    assert not copy_weights(model, ElectraPretrainer(CONFIG, **changes))
    formats.save(model, tmp_path / "huggingface", "huggingface")
    encoder = formats.load(tmp_path / "huggingface", "huggingface")
    assert isinstance(encoder, AlbertEncoder)
    ours, theirs = (one(x)["sequence_output"] for one in (model.encoder, encoder))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


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
