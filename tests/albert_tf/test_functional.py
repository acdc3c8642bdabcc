"""Every model in a functional Keras model: the same keys, shapes, dtypes and values as called with arrays."""

import functools
import json

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf import AlbertEncoder
from tests.albert_tf.tiny import ROWS, assert_alike, batch, small, table

CONFIG = small(num_hidden_layers=1, initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
PAIR = batch()
IDS = PAIR["input_ids"]
PLAIN = {"input_ids": IDS, "input_mask": PAIR["input_mask"]}
PACKED = {
    "input_ids": IDS,
    "sequence_ids": np.array([[0] * 4 + [1] * 4] * ROWS, "int32"),
    "sequence_starts": np.array([[0, 4]] * ROWS, "int32"),
}
WORDS = PLAIN | {"masked_lm_positions": np.array([[1, 2]] * ROWS, "int32")}
TARGETS = PLAIN | {"query_positions": np.array([[1, 2]] * ROWS, "int32")}
MEMORY = PLAIN | {"memory": np.random.default_rng(1).normal(size=(2, ROWS, 4, 16)).astype("float32")}
CHOICES = {name: np.stack([values] * 2, axis=1) for name, values in PLAIN.items()}
STARTS = PAIR | {"start_positions": np.full(ROWS, 4, "int32")}


FEATURES = {
    "ids": {"input_ids": IDS}, "plain": PLAIN, "pair": PAIR, "packed": PACKED, "words": WORDS,
    "targets": TARGETS, "memory": MEMORY, "choices": CHOICES, "starts": STARTS, "filled": WORDS | PACKED
}  # fmt: skip
# What is made of how many layers and with which arguments, what it is called with, and with which arguments.
_MEMBERS = table("""
    encoder with attentions      | Encoder           | plain   | 1 |  | "output_attentions": true
    encoder without pooler       | Encoder           | ids     | 1 | "pooler": false |
    encoder in bfloat16          | Encoder           | plain   | 1 | "dtype": "mixed_bfloat16" |
    loop with states             | Encoder           | plain   | 2 | "walk": "loop" | "output_hidden_states": true
    equilibrium                  | Encoder           | plain   | 2 | "walk": "equilibrium", "equilibrium_max_steps": 4 |
    packed rows                  | Encoder           | packed  | 1 |  |
    halting in a loop            | Encoder           | plain   | 2 | "walk": "loop", "halting": "act_t2t" |
    random depth                 | Encoder           | plain   | 2 | "random_depth_min": 1 |
    what a step has of its own   | Encoder           | plain   | 2 | "step_signal": "learned", "depth_lora_rank": 2 |
    window, rotary, pre-norm     | Encoder           | pair    | 2 | "attention_window": 2, "position_type": "rotary", "norm_position": "pre" |
    xlnet with two streams       | Encoder           | targets | 2 | "position_type": "relative" |
    xlnet with memory            | Encoder           | memory  | 2 | "walk": "loop", "position_type": "relative", "memory_length": 4 |
    classifier with exits        | Classifier        | plain   | 2 | "num_classes": 3, "early_exit": true |
    classifier, every exit       | Classifier        | plain   | 2 | "num_classes": 3, "early_exit": true | "every_step": true
    regressor                    | Regressor         | plain   | 1 |  |
    token classifier             | TokenClassifier   | plain   | 2 | "num_classes": 3, "early_exit": true |
    multiple choice              | MultipleChoice    | choices | 1 |  |
    joint spans                  | SpanPredictor     | pair    | 1 | "joint": true |
    joint spans with starts      | SpanPredictor     | starts  | 1 | "joint": true |
    spans without a search       | SpanPredictor     | pair    | 1 |  | "search": false
    embedder                     | SentenceEmbedder  | plain   | 1 |  |
    pretrainer of packed rows    | Pretrainer        | filled  | 1 |  |
    permutation                  | XlnetPretrainer   | words   | 2 | "position_type": "relative", "memory_length": 4 |
""")  # noqa: E501


def maker(kind, layers, made):
    """Makes a model of arguments of its configuration and of its own."""
    arguments = {"num_hidden_layers": int(layers)} | json.loads(f"{{{made}}}")
    fields = {name: arguments.pop(name) for name in list(arguments) if hasattr(CONFIG, name)}
    if kind.startswith(("Classifier", "Regressor", "TokenClassifier", "MultipleChoice", "SpanPredictor")):
        arguments["dropout"] = 0.0
    kind = kind if hasattr(albert_tf, kind) else f"Albert{kind}"
    return functools.partial(getattr(albert_tf, kind), CONFIG.replace(**fields), **arguments)


MEMBERS = {
    name: (maker(kind, layers, made), FEATURES[features], json.loads(f"{{{called}}}"))
    for name, kind, features, layers, made, called in _MEMBERS
}
# One of each kind of answer.
SAVED = ("encoder without pooler", "xlnet with two streams", "classifier with exits", "joint spans")
# What is another's with one argument or extension more.
SLOW = (
    *("encoder with attentions", "loop with states", "halting in a loop", "window, rotary, pre-norm"),
    *("classifier, every exit", "joint spans with starts", "spans without a search"),
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


def test_the_table_has_every_public_model():
    models = (getattr(albert_tf, name) for name in albert_tf.__all__)
    models = {model for model in models if isinstance(model, type) and issubclass(model, keras.Model)}
    # It trains an embedder that it is given, and has no answers of its own.
    models -= {albert_tf.PairTrainer}
    assert models == {make.func for make, _, _ in MEMBERS.values()}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MEMBERS])
def test_a_functional_model_answers_as_a_call_does_and_is_saved(name, tmp_path):
    make, features, arguments = MEMBERS[name]
    model = make()
    expected, inputs = model(features, **arguments), inputs_of(features)
    graph = keras.Model(inputs, model(inputs, **arguments))
    keras.tree.assert_same_structure(graph.output, expected)
    for (path, value), symbolic in zip(keras.tree.flatten_with_path(expected), keras.tree.flatten(graph.output)):
        assert symbolic.dtype == keras.backend.standardize_dtype(value.dtype), path
        known = tuple(size and found for size, found in zip(symbolic.shape, value.shape, strict=True))
        assert known == symbolic.shape, path
    in_training = graph(features, training=True)
    if name == "random depth":
        # Drawn, so of other values.
        keras.tree.assert_same_structure(in_training, expected)
        in_training = expected
    for found in (graph(features), in_training):
        assert_alike(found, expected, atol=0.1 if "bfloat16" in name else 1e-5)
    if name in SAVED:
        graph.save(tmp_path / "graph.keras")
        assert_alike(keras.saving.load_model(tmp_path / "graph.keras")(features), graph(features), atol=1e-6)


@pytest.mark.parametrize(
    "walk, key",
    [
        ("unrolled", "sequence_output"), ("loop", "sequence_output"), ("loop", "pooled_output"),
        ("recompute", "sequence_output")
    ]
)  # fmt: skip
def test_a_head_in_a_functional_model_trains_the_blocks(walk, key):
    part, inputs = AlbertEncoder(CONFIG.replace(num_hidden_layers=2, random_depth_min=1), walk=walk), inputs_of(PLAIN)
    vectors = part(inputs)[key]
    answer = keras.layers.Dense(2)(vectors if key == "pooled_output" else vectors[:, 0])
    model = keras.Model(inputs, answer)
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    before = part.blocks[0].get_weights()
    model.train_on_batch(PLAIN, np.ones((ROWS, 2)))
    moved = [np.abs(now - then).max() for now, then in zip(part.blocks[0].get_weights(), before)]
    # The key's bias has no gradient: softmax is the same whatever is added to all scores of a row.
    assert sum(size > 1e-9 for size in moved) >= len(moved) - 1
