"""What a model is given and cannot read: one line that names it, or NaN where a graph raises no errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertSpanPredictor, AlbertTokenClassifier
from albert_tf.base.layers import gather_positions, rows_at
from tests.albert_tf.test_functional import CONFIG, IDS, MEMBERS, PACKED, PAIR, PLAIN, TARGETS, WORDS
from tests.albert_tf.tiny import LENGTH, ROWS, assert_same_weights
from tests.refusals import refused

LABELS = np.arange(ROWS) % 2
SPANS = PAIR | {name: np.full(ROWS, 3, "int32") for name in ("start_positions", "end_positions")}
TAUGHT = WORDS | {
    "masked_lm_ids": np.full((ROWS, 2), 7, "int32"),
    "masked_lm_weights": np.ones((ROWS, 2), "float32"),
    "next_sentence_labels": np.zeros((ROWS, 1), "int32"),
}
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
    labels, weights = np.zeros((ROWS, LENGTH), type(value)), np.ones((ROWS, LENGTH))
    labels[1, 7] = value
    with refused(
        r"^labels: 0\.5 is no class" if value == 0.5 else rf"^labels: {value} at \[1, 7\] is not from 0 to 2$"
    ):
        model.fit(PLAIN, labels, verbose=0)
    weights[1, 7] = 0
    model._check_data(PLAIN, labels, weights)


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


# What is not read is the same of all models with an encoder: of most, the first case is enough.
@pytest.mark.parametrize(
    "name, cases",
    [
        *(("encoder without pooler", UNREADABLE), ("classifier with exits", UNREADABLE)),
        *(("token classifier", UNREADABLE[:1]), ("joint spans", UNREADABLE[:1])),
        *(("embedder", UNREADABLE[:1]), ("pretrainer", UNREADABLE[:1])),
    ],
)
def test_every_model_says_in_a_line_what_it_cannot_read(name, cases):
    model = MODELS[name]()
    model.compile("sgd", None if getattr(model, "has_own_loss", False) else "mse", run_eagerly=True)
    for features, labels, message in cases:
        for run in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
            with refused(f"^{message}"):
                run(features, labels)
    for features in (RAGGED, [IDS, IDS], WORDED, "a good film"):
        for run in (model.predict, model.predict_on_batch):
            with refused("not read"):
                run(features)
    with refused("texts are not read"):
        model(["a good film"])
    for features, labels in ((RAGGED, LABELS), (IDS, WORDED), (WORDED, LABELS)):
        with refused("not read"):
            model.fit(tf.data.Dataset.from_tensor_slices((features, labels)).batch(2))


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
