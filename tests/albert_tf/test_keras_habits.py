"""What a Keras user tries with any model: all of it works here, or says in a line what does."""

import contextlib

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf import AlbertClassifier, AlbertEncoder
from albert_tf.base.model import traced_functions
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.tiny import CLASSES, KINDS, POOLED, ROWS, batch, labels, small
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(num_hidden_layers=1)
TARGETS = labels("classifier")[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_stands_for_a_new_encoder(kind):
    model = KINDS[kind](CONFIG, dtype="mixed_bfloat16")
    encoder = getattr(model, "encoder", model)
    assert encoder.config == CONFIG and encoder.compute_dtype == model.compute_dtype == "bfloat16"
    # No weight that no gradient reaches.
    assert (encoder.pooler is not None) == (kind in POOLED)


def test_metrics_and_losses_of_ones_own_replace_the_defaults():
    model = AlbertClassifier(CONFIG, CLASSES)
    model.compile("adam", metrics=["sparse_categorical_accuracy"])
    found = model.train_on_batch(batch(), *TARGETS, return_dict=True)
    assert set(found) == {"loss", "sparse_categorical_accuracy"}
    model.compile("adam", "mse")
    assert model.loss == "mse" and isinstance(model.optimizer, keras.optimizers.Adam)
    # No metric that nobody asked for.
    assert set(model.test_on_batch(batch(), np.zeros((ROWS, CLASSES)), return_dict=True)) == {"loss"}


def test_quantization_and_export_by_keras_are_refused(tmp_path):
    model, message = AlbertClassifier(CONFIG, CLASSES), r"use `python -m serving\.export --compute=int8`"
    for quantize in (
        lambda: model.quantize("int8", filters="query"),
        lambda: model.encoder.quantize("int8"),
        lambda: AlbertEncoder(CONFIG, dtype="int8_from_float32"),
    ):
        with refused(f"quantized kernels are not offered.*{message}"):
            quantize()
    with refused(r"python -m serving\.export"):
        model.export(tmp_path)


def test_lora_says_what_it_cannot_do():
    encoder = AlbertEncoder(CONFIG)
    for arguments, message in (
        ((0,), "rank=0"),
        ((2, ["ffn"]), "'ffn' is none of query, key, value, output"),
        ((2, ["key", "output"]), ""),
        ((2,), "adapters already"),
    ):
        with refused(message) if message else contextlib.nullcontext():
            encoder.enable_lora(*arguments)


def test_lora_has_a_rate_at_which_it_learns(caplog):
    model = AlbertClassifier(CONFIG, CLASSES)
    model.compile()
    assert float(model.optimizer.learning_rate) == pytest.approx(2e-5)
    model.encoder.enable_lora(2)
    model.compile()
    assert float(model.optimizer.learning_rate) == pytest.approx(4e-4)
    model.compile(keras.optimizers.Adam(1e-4))
    assert not caplog.text
    model.compile(keras.optimizers.Adam(2e-5))
    assert "next to nothing at a learning rate of 2e-05; usual rates are 1e-4 to 1e-3" in caplog.text


# Of each rank and structure of answers one; test_functional.py compares the symbolic outputs of every kind.
@pytest.mark.parametrize("kind", ["encoder", "choices", "pretrainer", "joint spans"])
@pytest.mark.few(2)
def test_summaries_and_plots_know_every_shape(kind):
    model, lines = KINDS[kind](CONFIG), []
    model.summary(print_fn=lambda line, **_: lines.append(line), line_length=200, expand_nested=True)
    printed = "\n".join(lines)
    assert "?" not in printed and "block_0" in printed and f"{model.count_params():,}" in printed
    assert kind == "encoder" or "AlbertEncoder" in printed
    table = keras.src.utils.model_visualization.make_layer_label(
        model, show_layer_names=True, show_layer_activations=False, show_dtype=True, show_shapes=True,
        show_trainable=False
    )  # fmt: skip
    assert "?" not in table and "input_ids" in table
    keras.tree.assert_same_structure(model(batch(kind)), model.output)


X = batch()


def made(kind="classifier"):
    return filled(KINDS[kind](CONFIG))


# Whatever changes what layers compute after a function was traced, every answer is that of the model as it is now.
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


def test_fit_trains_what_is_to_train_now(in_graphs):
    model = made()
    model.compile(keras.optimizers.Adam(0.05))
    model.fit(X, *TARGETS, verbose=0)
    model.encoder.trainable = False
    before = model.encoder.get_weights()
    head = np.array(model.head.kernel)
    model.fit(X, *TARGETS, verbose=0)
    for then, now in zip(before, model.encoder.get_weights(), strict=True):
        assert_allclose(now, then, atol=0)
    assert np.abs(np.array(model.head.kernel) - head).max() > 1e-3
    model.encoder.enable_lora(2)
    with refused(r"other weights train than at the last compile; call compile\(\)"):
        model.fit(X, *TARGETS, verbose=0)
    assert_allclose(model.predict(X, verbose=0), model(X), atol=1e-5)
    model.encoder.merge_lora()
    assert_allclose(model.predict(X, verbose=0), model(X), atol=1e-5)


SHAPES = {
    "classifier": ([8, 1, 6], [8, 6, 1], [6]),
    "tagger": ([8, 1, 6], [8, 6, 1], [6]),
    "choices": ([8, 6], [8, 1, 2, 6]),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_ids_of_other_axes_are_refused(kind):
    model = made(kind)
    for shape in SHAPES[kind]:
        for call in (model, lambda ids: model.predict(ids, verbose=0)):
            with refused(r"input_ids: the shape is \(.*give \[batch, (choices, )?sequence\]"):
                call(np.ones(shape, "int32"))
    ids = np.ones([8, 2, 6] if kind == "choices" else [8, 6], "int32")
    with refused(r"input_mask: the shape is \(8,.* 1\), that of input_ids \(8,"):
        model({"input_ids": ids, "input_mask": ids[..., :1]})


MIRRORED = """
import keras, numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
from albert_tf import AlbertClassifier, AlbertConfig
from albert_tf.extensions.random_depth import depth_draw
config = AlbertConfig(vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=32, hidden_dropout_prob=0.1, random_depth_min=1)
ids, labels = np.random.default_rng(0).integers(1, 40, (8, 6)).astype("int32"), np.arange(8) % 2
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = AlbertClassifier(config, 2)
    model.compile()
first = model.get_weights()
history = model.fit({"input_ids": ids}, labels, batch_size=4, epochs=2, verbose=0).history
assert np.isfinite(history["loss"]).all() and 0 <= history["accuracy"][-1] <= 1, history
assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 4
assert any((before != after).any() for before, after in zip(first, model.get_weights()))
encoder, draws = model.encoder, []
draw = tf.function(lambda: strategy.run(lambda: depth_draw(encoder.config)(encoder.seed_generator.next())))
for _ in range(20):
    one, other = map(int, strategy.experimental_local_results(draw()))
    assert one == other, "the replicas draw different depths"
    draws.append(one)
assert set(draws) == {1, 2}, draws
print("evaluated", model.evaluate({"input_ids": ids}, labels, verbose=0))
assert model.predict({"input_ids": ids}, verbose=0).shape == (8, 2)
"""


@pytest.mark.slow
def test_fit_under_a_mirrored_strategy(run_module, tmp_path):
    (tmp_path / "fit_mirrored.py").write_text(MIRRORED)
    done = run_module("fit_mirrored", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
