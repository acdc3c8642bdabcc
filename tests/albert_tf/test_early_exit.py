"""A head at every step: what is trained, what is answered, what is kept."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertRegressor, AlbertTokenClassifier
from albert_tf.checkpoints import load_huggingface, load_official, save_huggingface, save_official

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = AlbertConfig(
    vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16,
)  # fmt: skip
MAKERS = {
    "classifier": lambda **kwargs: AlbertClassifier(AlbertEncoder(CONFIG), 4, **kwargs),
    "regressor": lambda **kwargs: AlbertRegressor(AlbertEncoder(CONFIG), **kwargs),
    "token classifier": lambda **kwargs: AlbertTokenClassifier(AlbertEncoder(CONFIG, pooler=False), 4, **kwargs),
}
FEATURES = {"input_ids": np.random.default_rng(0).integers(5, 50, (6, 9)).astype("int32")}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def labels_for(model):
    shape = keras.ops.shape(model(FEATURES))
    if shape[-1] == 1:
        return np.linspace(0, 1, 6, dtype="float32")[:, None]
    return np.random.default_rng(1).integers(0, 4, shape[:-1])


def test_without_early_exit_there_are_no_exits(make):
    model = make()
    assert model.exit_heads == [] and not isinstance(model(FEATURES, training=True), list)


def test_every_step_has_its_head_and_the_last_is_the_models(make):
    model = make(early_exit=True)
    assert len(model.exit_heads) == 3 and model.exit_heads[-1] is model.head
    exits = model.exit_logits(FEATURES)
    np.testing.assert_array_equal(exits[-1], model(FEATURES))
    states = model.encoder(FEATURES)["hidden_states"]
    vectors = states[2] if model.encoder.pooler is None else model.encoder.pooler(states[2][:, 0])
    np.testing.assert_allclose(exits[1], model.exit_heads[1](vectors), atol=1e-6)


def test_a_step_is_what_a_shallower_model_says():
    """Shared blocks: the second exit of three steps is the only head of a model of two."""
    model = MAKERS["classifier"](early_exit=True)
    shallow = AlbertClassifier(AlbertEncoder(CONFIG.replace(num_hidden_layers=2)), 4)
    shallow.encoder.set_weights(model.encoder.get_weights())
    shallow.head.set_weights(model.exit_heads[1].get_weights())
    np.testing.assert_allclose(model.exit_logits(FEATURES)[1], shallow(FEATURES), atol=1e-6)


def test_the_loss_weighs_steps_by_their_number(make):
    model = make(early_exit=True, dropout=0.0)
    labels = labels_for(model)
    is_regression = isinstance(model, AlbertRegressor)
    loss = "mse" if is_regression else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss)
    single = keras.losses.get(loss) if is_regression else loss
    values = [float(np.mean(single(labels, logits))) for logits in model.exit_logits(FEATURES)]
    expected = (values[0] + 2 * values[1] + 3 * values[2]) / 6
    assert float(model.train_on_batch(FEATURES, labels)) == pytest.approx(expected, rel=1e-5)
    assert len(set(np.round(values, 6))) == 3
    assert model.evaluate(FEATURES, labels, verbose=0) == pytest.approx(values[-1], rel=1e-5)


@pytest.mark.parametrize("make", ["regressor", "token classifier"], indirect=True)
def test_fit_moves_every_head_and_metrics_are_the_last_steps(make):
    model = make(early_exit=True)
    labels = labels_for(model)
    metric = [] if isinstance(model, AlbertRegressor) else ["accuracy"]
    loss = "mse" if not metric else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=metric)
    before = [head.get_weights()[0] for head in model.exit_heads]
    history = model.fit(FEATURES, labels, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert all((head.get_weights()[0] != kernel).any() for head, kernel in zip(model.exit_heads, before, strict=True))


def test_save_and_load(make, tmp_path):
    model = make(early_exit=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.exit_heads[-1] is loaded.head
    for expected, found in zip(model.exit_logits(FEATURES), loaded.exit_logits(FEATURES), strict=True):
        np.testing.assert_array_equal(expected, found)


def test_a_loop_over_depth_has_the_same_exits():
    model = MAKERS["classifier"](early_exit=True)
    loop = AlbertClassifier(AlbertEncoder(CONFIG, walk="loop"), 4, early_exit=True)
    loop.set_weights(model.get_weights())
    for expected, found in zip(model.exit_logits(FEATURES), loop.exit_logits(FEATURES), strict=True):
        np.testing.assert_allclose(expected, found, atol=1e-6)


def test_dropout_of_a_loaded_model_goes_on_where_the_saved_one_was(tmp_path):
    keras.utils.set_random_seed(1)
    model = MAKERS["classifier"](dropout=0.5)
    model(FEATURES, training=True)
    model.save(tmp_path / "model.keras")
    expected = model(FEATURES, training=True)
    keras.utils.set_random_seed(2)
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras")(FEATURES, training=True), expected)


def test_exits_go_to_transformers_and_back(make, tmp_path):
    """As AlbertForSequenceClassificationWithPabee names them: classifiers.0 and so on, the last one too."""
    model = make(early_exit=True)
    save_huggingface(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for number, head in enumerate(model.exit_heads):
        np.testing.assert_array_equal(tensors[f"classifiers.{number}.weight"], np.transpose(head.kernel))
    assert "classifier.weight" not in tensors and "WithPabee" in (tmp_path / "config.json").read_text()
    loaded = load_huggingface(tmp_path)
    assert type(loaded) is type(model) and len(loaded.exit_heads) == 3
    for expected, found in zip(model.exit_logits(FEATURES), loaded.exit_logits(FEATURES), strict=True):
        np.testing.assert_allclose(expected, found, atol=1e-6)


def test_the_official_format_keeps_the_last_head(tmp_path):
    model = MAKERS["classifier"](early_exit=True)
    save_official(model, tmp_path)
    loaded = load_official(tmp_path)
    assert loaded.exit_heads == []
    np.testing.assert_allclose(loaded(FEATURES), model(FEATURES), atol=1e-6)
