"""A head at every step: what is trained, what is answered, what is stored."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertRegressor, AlbertTokenClassifier
from albert_tf.checkpoints import load_huggingface, load_official, save_huggingface, save_official
from tests.albert_tf.depth_cases import small
from tests.albert_tf.portable import fill

pytestmark = pytest.mark.usefixtures("eagerly")

CONFIG = small(vocab_size=50, num_hidden_layers=3)
MAKERS = {
    "classifier": lambda **kwargs: AlbertClassifier(AlbertEncoder(CONFIG), 4, **kwargs),
    "regressor": lambda **kwargs: AlbertRegressor(AlbertEncoder(CONFIG), **kwargs),
    "token classifier": lambda **kwargs: AlbertTokenClassifier(AlbertEncoder(CONFIG, pooler=False), 4, **kwargs),
}
FEATURES = {"input_ids": np.random.default_rng(0).integers(5, 50, (6, 9)).astype("int32")}


@pytest.fixture(scope="module", params=MAKERS)
def model(request):
    return fill(MAKERS[request.param](early_exit=True, dropout=0.0))


@pytest.fixture(scope="module")
def exits(model):
    return model.exit_logits(FEATURES)


@pytest.fixture(scope="module")
def classifier():
    return fill(MAKERS["classifier"](early_exit=True, dropout=0.0))


def assert_same_exits(model, exits, tolerance=0.0):
    for found, expected in zip(model.exit_logits(FEATURES), exits, strict=True):
        np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)


def test_without_early_exit_there_are_no_exits():
    model = MAKERS["classifier"]()
    assert model.exit_heads == [] and not isinstance(model(FEATURES, training=True), list)


def test_every_step_has_its_head_and_the_last_is_the_models(model, exits):
    assert len(model.exit_heads) == 3 and model.exit_heads[-1] is model.head
    np.testing.assert_array_equal(exits[-1], model(FEATURES))
    states = model.encoder(FEATURES)["hidden_states"]
    vectors = states[2] if model.encoder.pooler is None else model.encoder.pooler(states[2][:, 0])
    np.testing.assert_allclose(exits[1], model.exit_heads[1](vectors), atol=1e-6)


def test_a_step_is_what_a_shallower_model_says(classifier):
    """Shared blocks: the second exit of three steps is the only head of a model of two."""
    shallow = AlbertClassifier(AlbertEncoder(CONFIG.replace(num_hidden_layers=2)), 4)
    shallow.encoder.set_weights(classifier.encoder.get_weights())
    shallow.head.set_weights(classifier.exit_heads[1].get_weights())
    np.testing.assert_allclose(classifier.exit_logits(FEATURES)[1], shallow(FEATURES), atol=1e-6)


def test_the_loss_weighs_steps_by_their_number_and_metrics_are_the_last_steps(model, exits):
    is_regression = isinstance(model, AlbertRegressor)
    shape = exits[-1].shape
    labels = np.random.default_rng(1).integers(0, 4, shape[:-1])
    labels = np.linspace(0, 1, 6, dtype="float32")[:, None] if is_regression else labels
    single = keras.losses.MeanSquaredError() if is_regression else keras.losses.SparseCategoricalCrossentropy(True)
    model.compile(keras.optimizers.SGD(0.0), single, metrics=["mse" if is_regression else "accuracy"])
    values = [float(single(labels, logits)) for logits in exits]
    found = model.train_on_batch(FEATURES, labels, return_dict=True)
    assert float(found["loss"]) == pytest.approx((values[0] + 2 * values[1] + 3 * values[2]) / 6, rel=1e-5)
    assert len(set(np.round(values, 6))) == 3
    figure = values[-1] if is_regression else np.mean(np.argmax(exits[-1], -1) == labels)
    assert float(found["mse" if is_regression else "accuracy"]) == pytest.approx(figure, rel=1e-5)
    assert model.evaluate(FEATURES, labels, verbose=0)[0] == pytest.approx(values[-1], rel=1e-5)


def test_fit_moves_every_head():
    model = MAKERS["classifier"](early_exit=True)
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(True))
    before = [head.get_weights()[0] for head in model.exit_heads]
    history = model.fit(FEATURES, np.arange(6) % 4, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert all((head.get_weights()[0] != kernel).any() for head, kernel in zip(model.exit_heads, before, strict=True))


def test_files_of_keras_and_of_transformers_hold_all_exits(model, exits, tmp_path):
    """As AlbertForSequenceClassificationWithPabee names them: classifiers.0 and so on, the last one too."""
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.exit_heads[-1] is loaded.head
    assert_same_exits(loaded, exits)
    save_huggingface(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for number, head in enumerate(model.exit_heads):
        np.testing.assert_array_equal(tensors[f"classifiers.{number}.weight"], np.transpose(head.kernel))
    assert "classifier.weight" not in tensors and "WithPabee" in (tmp_path / "config.json").read_text()
    loaded = load_huggingface(tmp_path)
    assert type(loaded) is type(model) and len(loaded.exit_heads) == 3
    assert_same_exits(loaded, exits, 1e-5)


def test_a_loop_over_depth_has_the_same_exits(classifier):
    loop = AlbertClassifier(AlbertEncoder(CONFIG, walk="loop"), 4, early_exit=True)
    loop.set_weights(classifier.get_weights())
    assert_same_exits(loop, classifier.exit_logits(FEATURES), 1e-5)


def test_dropout_of_a_loaded_model_goes_on_where_the_saved_one_was(tmp_path):
    keras.utils.set_random_seed(1)
    model = MAKERS["classifier"](dropout=0.5)
    model(FEATURES, training=True)
    model.save(tmp_path / "model.keras")
    expected = model(FEATURES, training=True)
    keras.utils.set_random_seed(2)
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras")(FEATURES, training=True), expected)


def test_the_official_format_keeps_the_last_head(classifier, tmp_path):
    save_official(classifier, tmp_path)
    loaded = load_official(tmp_path)
    assert loaded.exit_heads == []
    np.testing.assert_allclose(loaded(FEATURES), classifier(FEATURES), atol=1e-5)
