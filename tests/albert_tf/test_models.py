"""Every model trains, answers, saves, loads and is rebuilt from its configuration, to the same numbers."""

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.checkpoints.formats import load_keras
from tfrecords.base.errors import UserError

BATCH, LENGTH, CHOICES, PREDICTIONS = 4, 10, 3, 2


def small(**changes):
    sizes = dict(vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    return AlbertConfig(**sizes | dict(intermediate_size=24, max_position_embeddings=32) | changes)


def features(rng, *shape):
    ids = rng.integers(5, 50, shape).astype("int32")
    mask = (np.arange(shape[-1]) < rng.integers(6, shape[-1] + 1, shape[:-1] + (1,))).astype("int32")
    return {"input_ids": ids, "input_mask": mask, "segment_ids": (np.arange(shape[-1]) > 3).astype("int32") * mask}


def make(name, encoder):
    """A model, its features, its labels (None where features hold them) and what to compile it with."""
    rng = np.random.default_rng(0)
    x, logits = features(rng, BATCH, LENGTH), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "pretrainer":
        x["masked_lm_positions"] = rng.integers(0, 6, (BATCH, PREDICTIONS)).astype("int32")
        x["masked_lm_ids"] = rng.integers(5, 50, (BATCH, PREDICTIONS)).astype("int32")
        x["masked_lm_weights"] = np.ones((BATCH, PREDICTIONS), "float32")
        x["next_sentence_labels"] = rng.integers(0, 2, (BATCH, 1)).astype("int32")
        return albert_tf.AlbertPretrainer(encoder), x, None, {}
    if name in ("span", "joint span"):
        x["start_positions"], x["end_positions"] = np.full(BATCH, 4, "int32"), np.full(BATCH, 5, "int32")
        x["is_impossible"] = np.array([0, 0, 1, 0], "int32")
        return albert_tf.AlbertSpanPredictor(encoder, joint=name == "joint span", start_top=2, end_top=2), x, None, {}
    if name == "classifier":
        return albert_tf.AlbertClassifier(encoder, num_classes=3), x, np.array([0, 1, 2, 0]), {"loss": logits}
    if name == "regressor":
        return albert_tf.AlbertRegressor(encoder), x, rng.normal(size=BATCH).astype("float32"), {"loss": "mse"}
    if name == "multiple choice":
        x = features(rng, BATCH, CHOICES, LENGTH)
        return albert_tf.AlbertMultipleChoice(encoder), x, np.array([0, 1, 2, 0]), {"loss": logits}
    if name == "token classifier":
        model = albert_tf.AlbertTokenClassifier(encoder, num_classes=4)
        return model, x, rng.integers(0, 4, (BATCH, LENGTH)), {"loss": logits}
    model = albert_tf.AlbertSentenceEmbedder(encoder, pooling=name)
    return model, x, rng.normal(size=(BATCH, 16)).astype("float32"), {"loss": "mse"}


NAMES = ["pretrainer", "classifier", "regressor", "multiple choice", "token classifier", "span", "joint span"]
NAMES += ["mean", "cls"]


def flat(outputs):
    return [np.asarray(leaf, "float32") for leaf in keras.tree.flatten(outputs)]


def trained(name, run_eagerly):
    """A model whose loss has fallen, and its features."""
    pooler = name in ("pretrainer", "classifier", "regressor", "multiple choice")
    model, x, y, compiled = make(
        name, AlbertEncoder(small(num_hidden_layers=1, hidden_dropout_prob=0.1), pooler=pooler, seed=1)
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-2), run_eagerly=run_eagerly, **compiled)
    history = model.fit(x, y, epochs=4, batch_size=BATCH, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert model.evaluate(x, y, verbose=0, return_dict=True)["loss"] > 0
    return model, x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_trains_in_a_graph(name):
    model, x = trained(name, run_eagerly=False)
    assert all(np.isfinite(found).all() for found in flat(model.predict(x, verbose=0)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few(2)
def test_trains_and_round_trips(name, tmp_path):
    model, x = trained(name, run_eagerly=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.encoder.config == model.encoder.config
    for ours, theirs in zip(flat(loaded(x)), flat(model(x)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    rebuilt = type(model).from_config(model.get_config())
    assert [w.shape for w in rebuilt.weights] == [w.shape for w in model.weights]
    assert rebuilt.get_config() == model.get_config()


@pytest.mark.parametrize("name", ["pretrainer", "joint span", "mean"])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
@pytest.mark.few(2)
def test_half_precision_stays_finite_and_close(name, policy):
    exact, x, _, _ = make(name, AlbertEncoder(small()))
    half, _, _, _ = make(name, AlbertEncoder(small(), dtype=policy))
    half.set_weights(exact.get_weights())
    for ours, theirs in zip(flat(half(x)), flat(exact(x))):
        assert np.isfinite(ours).all()
        if theirs.min() > -100 and "span" not in name:
            np.testing.assert_allclose(ours, theirs, atol=0.1)


@pytest.mark.parametrize(
    "change",
    [{"sharing": "attention"}, {"sharing": "ffn"}, {"sharing": "none"}, {"num_hidden_groups": 2, "inner_group_num": 2}],
)
@pytest.mark.few(2)
def test_keras_files_keep_every_kind_of_sharing(change, tmp_path):
    encoder = AlbertEncoder(small(num_hidden_layers=3, **change), walk="loop", pooler=False)
    rng = np.random.default_rng(1)
    encoder.set_weights([rng.normal(size=weight.shape) for weight in encoder.weights])
    encoder.save(tmp_path / "encoder.keras")
    loaded = load_keras(tmp_path / "encoder.keras")
    assert (loaded.config, loaded.walk, loaded.pooler) == (encoder.config, "loop", None)
    assert len(loaded.blocks) == len(encoder.blocks)
    for ours, theirs in zip(loaded.get_weights(), encoder.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_damaged_and_foreign_keras_files_are_refused(tmp_path):
    file = tmp_path / "model.keras"
    with pytest.raises(UserError, match=r"no Keras model .*model\.keras"):
        load_keras(tmp_path)
    AlbertEncoder(small()).save(file)
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], whole[: len(whole) // 2]):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cannot read .*model\.keras"):
            load_keras(tmp_path)
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(file)
    with pytest.raises(UserError, match="Sequential, which is no model of this package"):
        load_keras(tmp_path)


def test_summary_is_readable(capsys):
    model = make("classifier", AlbertEncoder(small()))[0]
    model.summary(expand_nested=True)
    printed = capsys.readouterr().out
    assert "AlbertEncoder" in printed and "head" in printed and "block_0" in printed
    assert f"{model.count_params():,}" in printed


def test_unknown_choices_are_named():
    encoder = AlbertEncoder(small())
    with pytest.raises(UserError, match="pair_task 'order'"):
        albert_tf.AlbertPretrainer(encoder, pair_task="order")
    with pytest.raises(UserError, match="needs an encoder with a pooler"):
        albert_tf.AlbertPretrainer(AlbertEncoder(small(), pooler=False))
    for name in ("classifier", "regressor", "multiple choice"):
        with pytest.raises(UserError, match="needs an encoder with a pooler"):
            make(name, AlbertEncoder(small(), pooler=False))
    with pytest.raises(UserError, match="pooling 'max'"):
        albert_tf.AlbertSentenceEmbedder(encoder, pooling="max")
    with pytest.raises(UserError, match="walk 'spiral'"):
        AlbertEncoder(small(), walk="spiral")


@pytest.mark.parametrize("name", ["encoder", "classifier", "multiple choice"])
def test_a_sequence_over_the_positions_is_one_clear_line(name):
    encoder = AlbertEncoder(small(max_position_embeddings=9))
    model, x = (encoder, features(np.random.default_rng(0), 2, 10)) if name == "encoder" else make(name, encoder)[:2]
    message = "^a sequence of 10 tokens is over max_position_embeddings 9; cut it$"
    for call in (model, lambda x: model.predict(x, verbose=0)):
        with pytest.raises(UserError, match=message):
            call(x)
    model({feature: values[..., :9] for feature, values in x.items()})


def test_positions_counted_by_the_mask_are_as_many():
    encoder = AlbertEncoder(small(max_position_embeddings=11, position_offset=2, sharing="none", embedding_size=16))
    with pytest.raises(UserError, match=r"^a sequence of 10 tokens is over max_position_embeddings 11 - 2; cut it$"):
        encoder(features(np.random.default_rng(0), 2, 10))


def test_choices_have_positions_and_packed_texts_of_their_own():
    model, x = make("multiple choice", AlbertEncoder(small()))[:2]
    plain = np.broadcast_to(np.arange(x["input_ids"].shape[-1], dtype="int32"), x["input_ids"].shape)
    np.testing.assert_allclose(model(x | {"position_ids": plain}), model(x), atol=1e-6)
    assert np.abs(model(x | {"position_ids": plain[..., ::-1].copy()}) - model(x)).max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_transformers_names_are_the_same_features_and_unknown_ones_are_refused(name):
    pooler = name in ("pretrainer", "classifier", "regressor", "multiple choice")
    model, x, _, _ = make(name, AlbertEncoder(small(), pooler=pooler))
    theirs = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    renamed = {theirs.get(key, key): value for key, value in x.items()}
    for ours, other in zip(flat(model(x)), flat(model(renamed))):
        np.testing.assert_array_equal(ours, other)
    with pytest.raises(UserError, match="no model knows a feature 'input_msk'; did you mean 'input_mask'"):
        model(x | {"input_msk": x["input_mask"]})
    with pytest.raises(UserError, match="attention_mask and input_mask, which are the same"):
        model(x | {"attention_mask": x["input_mask"]})
    with pytest.raises(UserError, match="no input_ids, only input_mask"):
        model({"input_mask": x["input_mask"]})


def test_a_typing_error_is_met_in_fit_too():
    model, x, y, compiled = make("classifier", AlbertEncoder(small()))
    model.compile(optimizer="sgd", **compiled)
    with pytest.raises(UserError, match="did you mean 'segment_ids'"):
        model.fit(x | {"segment_id": x["segment_ids"]}, y, verbose=0)
