"""Every model in a functional Keras model: the same keys, shapes, dtypes and values as called with arrays."""

import functools

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf import (
    AlbertClassifier,
    AlbertConfig,
    AlbertEncoder,
    AlbertMultipleChoice,
    AlbertPretrainer,
    AlbertRegressor,
    AlbertSentenceEmbedder,
    AlbertSpanPredictor,
    AlbertTokenClassifier,
    ElectraPretrainer,
    LearnedExit,
    XlnetPretrainer,
)

ROWS, LENGTH = 3, 8
CONFIG = AlbertConfig(
    vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=32, initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
XLNET = CONFIG.replace(position_type="relative", norm_position="post", max_position_embeddings=32)
IDS = np.random.default_rng(0).integers(5, 40, (ROWS, LENGTH)).astype("int32")
MASK = np.array([[1] * 6 + [0] * 2, [1] * 8, [1] * 8], "int32")
PLAIN = {"input_ids": IDS, "input_mask": MASK}
PAIR = PLAIN | {"segment_ids": np.array([[0, 0, 0, 1, 1, 1, 1, 1]] * ROWS, "int32")}
PACKED = {
    "input_ids": IDS,
    "sequence_ids": np.array([[0] * 4 + [1] * 4] * ROWS, "int32"),
    "sequence_starts": np.array([[0, 4]] * ROWS, "int32"),
}
WORDS = PLAIN | {"masked_lm_positions": np.array([[1, 2]] * ROWS, "int32")}
DRAWN = WORDS | {
    "masked_lm_ids": np.array([[7, 8]] * ROWS, "int32"),
    "masked_lm_weights": np.ones((ROWS, 2), "float32"),
}
TARGETS = PLAIN | {"query_positions": np.array([[1, 2]] * ROWS, "int32")}
MEMORY = PLAIN | {"memory": np.random.default_rng(1).normal(size=(2, ROWS, 4, 16)).astype("float32")}
CHOICES = {name: np.stack([values] * 2, axis=1) for name, values in PLAIN.items()}
STARTS = PAIR | {"start_positions": np.array([3, 4, 5], "int32")}


def encoder(walk="unrolled", config=CONFIG, **changes):
    return functools.partial(AlbertEncoder, config.replace(**changes), walk=walk)


def head(model, *args, config=CONFIG, **kwargs):
    return functools.partial(model, config, *args, **kwargs)


EXITING = functools.partial(head, AlbertClassifier, 3, dropout=0.0)
# What is made, what it is called with, and with which arguments.
MEMBERS = {
    "encoder": (encoder(), PLAIN, {}),
    "encoder with attentions": (encoder(), PLAIN, {"output_attentions": True}),
    "encoder without states": (encoder(), PLAIN, {"output_hidden_states": False}),
    "encoder of one feature": (encoder(), {"input_ids": IDS}, {}),
    "encoder without pooler": (head(AlbertEncoder, pooler=False), PLAIN, {}),
    "encoder in bfloat16": (head(AlbertEncoder, dtype="mixed_bfloat16"), PLAIN, {}),
    "loop": (encoder("loop"), PLAIN, {}),
    "loop with states": (encoder("loop"), PLAIN, {"output_hidden_states": True}),
    "recompute": (encoder("recompute"), PLAIN, {}),
    "equilibrium": (encoder("equilibrium", equilibrium_max_steps=4), PLAIN, {}),
    "packed rows": (encoder(), PACKED, {}),
    "halting": (encoder(halting="act"), PLAIN, {}),
    "halting in a loop": (encoder("loop", halting="act_t2t"), PLAIN, {}),
    "random depth": (encoder(random_depth_min=1), PLAIN, {}),
    "step signal": (encoder(step_signal="learned"), PLAIN, {}),
    "hyper-connections": (encoder(hyper_connections=2), PLAIN, {}),
    "low rank by depth": (encoder(depth_lora_rank=2), PLAIN, {}),
    "window": (encoder(attention_window=2), PLAIN, {}),
    "rotary, pre-norm": (encoder(position_type="rotary", norm_position="pre"), PLAIN, {}),
    "xlnet": (encoder(config=XLNET), PAIR, {}),
    "xlnet with two streams": (encoder(config=XLNET), TARGETS, {}),
    "xlnet that leaves memory": (encoder(config=XLNET, memory_length=4), PLAIN, {}),
    "xlnet with memory": (encoder("loop", XLNET, memory_length=4), MEMORY, {}),
    "classifier": (EXITING(), PLAIN, {}),
    "classifier with exits": (EXITING(early_exit=True), PLAIN, {}),
    "classifier, every exit": (EXITING(early_exit=True), PLAIN, {"every_step": True}),
    "classifier that learns exits": (EXITING(early_exit=LearnedExit()), PLAIN, {}),
    "regressor": (head(AlbertRegressor, dropout=0.0), PLAIN, {}),
    "token classifier": (head(AlbertTokenClassifier, 3, dropout=0.0, early_exit=True), PLAIN, {}),
    "multiple choice": (head(AlbertMultipleChoice, dropout=0.0), CHOICES, {}),
    "spans": (head(AlbertSpanPredictor), PAIR, {}),
    "joint spans": (head(AlbertSpanPredictor, joint=True, dropout=0.0), PAIR, {}),
    "joint spans with starts": (head(AlbertSpanPredictor, joint=True, dropout=0.0), STARTS, {}),
    "spans without a search": (head(AlbertSpanPredictor), PAIR, {"search": False}),
    "embedder": (head(AlbertSentenceEmbedder), PLAIN, {}),
    "pretrainer": (head(AlbertPretrainer), WORDS, {}),
    "pretrainer without pairs": (head(AlbertPretrainer, pair_task=None), PLAIN, {}),
    "pretrainer of packed rows": (head(AlbertPretrainer), WORDS | PACKED, {}),
    "electra": (head(ElectraPretrainer, pair_task="sop"), WORDS, {}),
    "electra that draws words": (head(ElectraPretrainer, generator_steps=1), DRAWN, {}),
    "permutation": (head(XlnetPretrainer, config=XLNET.replace(memory_length=4)), WORDS, {}),
}
# One of each kind of answer.
SAVED = (
    "encoder",
    "xlnet with two streams",
    "classifier with exits",
    "joint spans",
    "electra that draws words",
)


def inputs_of(features):
    inputs = {
        name: keras.Input((None,) * (values.ndim - 1), dtype=str(values.dtype), name=name)
        for name, values in features.items()
        if name != "memory"
    }
    if "memory" in features:
        # Its first axis is the steps.
        steps, *_, width = features["memory"].shape
        inputs["memory"] = keras.Input((None, None, width), batch_size=steps, name="memory")
    return inputs


def leaves(outputs):
    return {"/".join(map(str, path)): value for path, value in keras.tree.flatten_with_path(outputs)}


def numpy(value):
    return keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))


def functional(model, features, arguments):
    inputs = inputs_of(features)
    return keras.Model(inputs, model(inputs, **arguments))


def test_the_table_has_every_public_model():
    models = (getattr(albert_tf, name) for name in albert_tf.__all__)
    models = {model for model in models if isinstance(model, type) and issubclass(model, keras.Model)}
    assert models == {make.func for make, _, _ in MEMBERS.values()}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_functional_model_answers_as_a_call_does_and_is_saved(name, tmp_path):
    make, features, arguments = MEMBERS[name]
    model = make()
    expected = leaves(model(features, **arguments))
    graph = functional(model, features, arguments)
    symbolic = leaves(graph.output)
    assert symbolic.keys() == expected.keys()
    for key, value in expected.items():
        assert symbolic[key].dtype == keras.backend.standardize_dtype(value.dtype), key
        known = [size if size is None else found for size, found in zip(symbolic[key].shape, value.shape, strict=True)]
        assert known == list(symbolic[key].shape), key
    tolerance = {"atol": 0.1 if "bfloat16" in name else 1e-5}
    for training in (False, True):
        if training and name == "random depth":
            # Drawn, so of other values.
            assert leaves(graph(features, training=True)).keys() == expected.keys()
            continue
        found = leaves(graph(features, training=training))
        assert found.keys() == expected.keys()
        if training and name == "electra that draws words":
            continue
        for key, value in expected.items():
            np.testing.assert_allclose(numpy(found[key]), numpy(value), **tolerance, err_msg=key)
    if name in SAVED:
        graph.save(tmp_path / "graph.keras")
        again = leaves(keras.saving.load_model(tmp_path / "graph.keras")(features))
        assert again.keys() == expected.keys()
        for key, value in leaves(graph(features)).items():
            np.testing.assert_allclose(numpy(again[key]), numpy(value), atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    ("walk", "key"),
    [
        ("unrolled", "sequence_output"), ("loop", "sequence_output"), ("loop", "pooled_output"),
        ("recompute", "sequence_output"),
    ],
)  # fmt: skip
def test_a_head_in_a_functional_model_trains_the_blocks(walk, key):
    part, inputs = AlbertEncoder(CONFIG.replace(random_depth_min=1), walk=walk), inputs_of(PLAIN)
    vectors = part(inputs)[key]
    answer = keras.layers.Dense(2)(vectors if key == "pooled_output" else vectors[:, 0])
    model = keras.Model(inputs, answer)
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    before = [numpy(weight) for weight in part.blocks[0].trainable_weights]
    model.train_on_batch(PLAIN, np.ones((ROWS, 2)))
    moved = [np.abs(numpy(now) - then).max() for now, then in zip(part.blocks[0].trainable_weights, before)]
    # The key's bias has no gradient: softmax is the same whatever is added to all scores of a row.
    assert sum(size > 1e-9 for size in moved) >= len(moved) - 1


def test_a_span_predictor_in_a_functional_model_searches_in_training_too():
    model, inputs = AlbertSpanPredictor(CONFIG, start_top=2, end_top=2), inputs_of(PAIR)
    graph = keras.Model(inputs, model(inputs)["spans"]["score"])
    np.testing.assert_allclose(graph(PAIR, training=True), model(PAIR)["spans"]["score"], atol=1e-5)
    assert "spans" not in model(PAIR, training=True)
