"""Every model in a functional Keras model answers as called with arrays; and what no model can read.

The latter is one line that names it, or NaN where a graph raises no errors.
"""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

import albert_tf
from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertSpanPredictor, AlbertTokenClassifier
from albert_tf.base.layers import gather_positions, rows_at
from tests.albert_tf.tiny import LENGTH, ROWS, assert_alike, assert_same_weights, batch, labels, small, table
from tests.refusals import refused

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


LABELS = np.arange(ROWS) % 2
SPANS, TAUGHT = PAIR | labels("spans")[0], WORDS | labels("pretrainer")[0]
PLACED = PLAIN | {"position_ids": np.tile(np.arange(LENGTH, dtype="int32"), (ROWS, 1))}


def encoder(**changes):
    return AlbertEncoder(CONFIG.replace(**changes))


# A feature, what reads it, a batch, and the first number that is too large.
CALLED = {
    "input_ids": (encoder, PLAIN, 40),
    "segment_ids": (encoder, PAIR, 2),
    "position_ids": (encoder, PLACED, 32),
    "sequence_starts": (encoder, PACKED, LENGTH),
    "query_positions": (MEMBERS["xlnet with two streams"][0], TARGETS, LENGTH),
    "masked_lm_positions": (lambda: AlbertPretrainer(CONFIG), WORDS, LENGTH),
    "start_positions": (lambda: AlbertSpanPredictor(CONFIG, joint=True), SPANS, LENGTH),
}
# Labels are read by the loss alone.
FITTED = CALLED | {
    "masked_lm_ids": (lambda: AlbertPretrainer(CONFIG), TAUGHT, 40),
    "next_sentence_labels": (lambda: AlbertPretrainer(CONFIG), TAUGHT, 2),
    "end_positions": (lambda: AlbertSpanPredictor(CONFIG), SPANS, LENGTH),
}


def with_value(features, name, value):
    changed = features[name].copy()
    changed[(1,) + (0,) * (changed.ndim - 1)] = value
    return features | {name: changed}


@pytest.mark.parametrize("name", FITTED)
def test_call_and_fit_name_the_value_that_is_out_of_range_before_the_first_step(name):
    make, features, size = FITTED[name]
    model = make()
    model.compile("sgd", loss=None, run_eagerly=True)
    for value in (-1, size):
        wrong, said = with_value(features, name, value), rf"{value} at \[1(, 0)?\] is not from 0 to {size - 1}$"
        for run in (model.fit, model.evaluate):
            with refused(f"^{name}: {said}"):
                run(wrong, verbose=0)
        if name in CALLED:
            with refused(said):
                model(wrong)
    with refused(f"^{name}: -1 "):
        model.predict(with_value(features, name, -1), verbose=0)


def test_positions_of_roberta_are_counted_before_its_offset():
    model = encoder(position_offset=2)
    model(with_value(PLACED, "position_ids", -2))
    for value, said in ((-3, r"-3 at \[1, 0\] is not from -2 to 29$"), (30, "30 ")):
        with refused(f"^position_ids: {said}"):
            model(with_value(PLACED, "position_ids", value))


@pytest.mark.parametrize("value", [-1, 4])
def test_graphs_without_errors_give_nan_and_never_another_row(value):
    table, indices = tf.random.normal([4, 3]), tf.constant([[0, value], [1, 2]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"= {value} is not in"):
        tf.function(rows_at)(table, indices, "ids")
    rows = tf.random.normal([2, 4, 3])
    # In the last row too, before which another one lies.
    for places in (indices, indices[::-1]):
        lost = np.equal(places, value)
        for read, arguments, whole in (
            (rows_at, (table, places, "ids"), np.stack([table] * 2)), (gather_positions, (rows, places), rows.numpy())
        ):  # fmt: skip
            found = tf.function(read, jit_compile=True)(*arguments).numpy()
            assert_array_equal(np.isnan(found).all(-1), lost)
            good = int(lost[0].any())
            assert_array_equal(found[good], whole[good, 1:3])


@pytest.mark.parametrize("value", [-1, 3, 0.5])
def test_labels_that_are_no_class_are_named(value):
    model = AlbertTokenClassifier(CONFIG, 3)
    model.compile(run_eagerly=True)
    classes, weights = np.zeros((ROWS, LENGTH), type(value)), np.ones((ROWS, LENGTH))
    classes[1, 7] = value
    with refused(
        r"^labels: 0\.5 is no class" if value == 0.5 else rf"^labels: {value} at \[1, 7\] is not from 0 to 2$"
    ):
        model.fit(PLAIN, classes, verbose=0)
    weights[1, 7] = 0
    model._check_data(PLAIN, classes, weights)


RAGGED = tf.ragged.constant([[5, 6], [7], [8, 9, 10], [11]], dtype=tf.int32)
WORDED = np.array(["dull", "fine", "dull", "fine"])
UNREADABLE = [
    (WORDED, LABELS, r"input_ids: texts are not read; .*Preprocessor"),
    (["a good film"] * ROWS, LABELS, r"features: texts are not read; call loaded\.predict\(texts\) .*Preprocessor"),
    ("a good film", LABELS, "features: texts are not read"),
    (PLAIN, WORDED, "labels: strings are not read; give numbers from 0"),
    (PLAIN, list(WORDED), "labels: strings are not read"),
    (PLAIN, WORDED.astype(object), "labels: strings are not read"),
    (PLAIN, tf.constant(WORDED), "labels: strings are not read"),
    (PLAIN, [0, 1, 0, 1], "labels: a list is not read; give an array"),
    (PLAIN, RAGGED, "labels: a RaggedTensor is not read"),
    ((IDS, IDS), LABELS, "features: a tuple is not read; .* name arrays"),
    (list(IDS), LABELS, "features: a list is not read; give an array of ids"),
    ({"input_ids": IDS.tolist()}, LABELS, "input_ids: a list is not read; give an array"),
    ({"input_ids": RAGGED}, LABELS, "input_ids: a RaggedTensor is not read.*to_tensor"),
    ({"input_ids": IDS.astype("float32")}, LABELS, "input_ids: float32 is not read; give whole numbers"),
]


MODELS = {name: made[0] for name, made in MEMBERS.items()} | {"pretrainer": lambda: AlbertPretrainer(CONFIG)}


@pytest.mark.parametrize(
    "name",
    ["encoder without pooler", "classifier with exits", "token classifier", "joint spans", "embedder", "pretrainer"],
)
def test_every_model_says_in_a_line_what_it_cannot_read(name):
    model = MODELS[name]()
    model.compile("sgd", None if getattr(model, "has_own_loss", False) else "mse", run_eagerly=True)
    # What is not read is the same of all models with an encoder: of most, the first case is enough.
    for features, answers, message in UNREADABLE[: None if name.startswith(("enc", "classifier")) else 1]:
        for run in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
            with refused(f"^{message}"):
                run(features, answers)
    for features in (RAGGED, [IDS, IDS], WORDED, "a good film"):
        for run in (model.predict, model.predict_on_batch):
            with refused("not read"):
                run(features)
    with refused("texts are not read"):
        model(["a good film"])
    for features, answers in ((RAGGED, LABELS), (IDS, WORDED), (WORDED, LABELS)):
        with refused("not read"):
            model.fit(tf.data.Dataset.from_tensor_slices((features, answers)).batch(2))


def test_hdf5_files_are_refused_before_anything_is_written(tmp_path):
    model, again = (AlbertClassifier(CONFIG, 3, early_exit=True) for _ in range(2))
    with refused(r"ends in \.keras"):
        model.save(tmp_path / "model.h5")
    assert not list(tmp_path.iterdir())
    with refused(r"ends in \.keras"):
        keras.models.save_model(model, tmp_path / "model.h5")
    model.save_weights(tmp_path / "model.weights.h5")
    again.load_weights(tmp_path / "model.weights.h5")
    assert_same_weights(again, model)
