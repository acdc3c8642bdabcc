"""Token ids in: what of a row is read, what is refused, what each head's answers mean, and what each model offers."""

import json

import numpy as np
import pytest
import tensorflow as tf

from serving.exportable import ExportOptions, make_exportable
from serving.exportable.inputs import batch_of_mask
from serving.exportable.samples import sample_inputs
from tests.refusals import lines, refused
from tests.serving.conftest import assert_close, example

pytestmark = pytest.mark.usefixtures("eagerly")
Refused = tf.errors.InvalidArgumentError
ROWS = {"input_ids": np.array([[2, 9, 14, 7, 3], [2, 11, 3, 0, 0]]), "lengths": np.array([5, 3])}
MASK = 1 * (ROWS["input_ids"] > 0)
FEATURES = {"input_ids": ROWS["input_ids"], "input_mask": MASK}
# Head, signature, what is wrong of four rows of nine tokens, and the sentence; a number alone stands in one place.
WRONG = """
classifier | masked | {"input_ids": -1} | is not in
classifier | masked | {"input_ids": 1000000} | is not in
classifier | masked | {"segment_ids": -1} | is not in
classifier | masked | {"segment_ids": 9} | is not in
classifier | serving_default | {"lengths": [1]} | lengths and input_ids differ in size
classifier | serving_default | {"lengths": [9, 9, 9]} | lengths and input_ids differ in size
classifier | masked | {"input_mask": [[1, 1, 1, 1, 1, 1, 1, 1, 1]]} | input_mask and input_ids differ in size
classifier | int64 | {"input_mask": [[1], [1], [1], [1]]} | input_mask and input_ids differ in size
classifier | masked | {"segment_ids": [[1], [1], [1], [1]]} | segment_ids and input_ids differ in size
spans | serving_default | {"segment_ids": [[1, 1, 1, 1, 1, 1, 1, 1, 1]]} | segment_ids and input_ids differ in size
multiple choice | serving_default | {"lengths": [[9, 9, 9, 9]]} | lengths and input_ids differ in size
classifier | serving_default | {"input_ids": [[], [], [], []], "lengths": [0, 0, 0, 0]} | without a single token
classifier | serving_default | {"lengths": [9, 9, 9, 0]} | lengths must be from 1 to the columns of input_ids
classifier | serving_default | {"lengths": [9, 9, 9, -1]} | lengths must be from 1 to the columns of input_ids
classifier | serving_default | {"lengths": [9, 9, 9, 10]} | lengths must be from 1 to the columns of input_ids
classifier | serving_default | {"lengths": [9, 9, 9, -2147483648]} | lengths must be from 1 to the columns of input_ids
classifier | serving_default | {"lengths": [9, 9, 9, 2147483647]} | lengths must be from 1 to the columns of input_ids
classifier | classify | {"inputs": [""]} | Example has no input_ids
"""


@pytest.mark.parametrize("head, signature, wrong, sentence", [line.split(" | ") for line in lines(WRONG)])
def test_what_no_model_can_read_is_refused(serve, head, signature, wrong, sentence):
    _, served = serve(head)
    inputs = sample_inputs(served.exportable, served.signatures[signature], 9, 4, seed=1)
    for name, value in json.loads(wrong).items():
        inputs[name] = np.array(value if isinstance(value, list) else inputs[name])
        if not isinstance(value, list):
            inputs[name][1, 3] = value
    with pytest.raises(Refused, match=sentence):
        served(signature, **inputs)


# Head, options of the export, and the sentence.
IMPOSSIBLE = r"""
classifier | {"task": {"labels": ["a", "b"]}} | names 2 labels \(a, b\), the model has 3 classes
token classifier | {"task": {"labels": ["a", "b"]}} | names 2 labels \(a, b\), the model has 4 classes
embedder | {"dimensions": 17} | --dimensions=17 must be from 1 to the 16 numbers
classifier | {"dimensions": 3} | AlbertClassifier gives none
spans | {"exit_rule": "movement"} | AlbertSpanPredictor
embedder | {"family": "xlnet", "exit_rule": "movement"} | movement is not offered with relative positions
"""


@pytest.mark.parametrize("head, options, sentence", [x.split(" | ") for x in lines(IMPOSSIBLE)])
def test_what_no_export_can_have_is_refused(serve, head, options, sentence):
    with refused(sentence):
        serve(head, **json.loads(options))


def test_a_row_ends_at_its_masks_first_0_or_before_repetitions_of_its_first_id():
    """Behind the client's padding and the server's; what a mask says behind its first 0 does not count."""
    ids = np.array([[2, 7, 8, 0, 2, 2], [2, 7, 8, 2, 2, 2], [2, 7, 0, 9, 2, 2], [2, 5, 5, 5, 5, 5]])
    mask, lengths = 1 * (ids > 0), [3, 3, 2, 6]
    found = batch_of_mask(*map(tf.constant, (ids, mask, 0 * ids + 1)))
    inside = 1 * (np.arange(6) < np.array(lengths)[:, None])
    assert [values.numpy().tolist() for values in found] == [(ids * inside).tolist(), *[inside.tolist()] * 2]
    assert found.lengths.numpy().tolist() == lengths


def test_columns_that_no_row_needs_do_not_count(serve):
    """Neither against the longest row, nor in the answer."""
    _, served = serve("classifier", max_seq_length=8)
    wide = np.array([[2, 8, 9, 3, *[2] * 6]] * 2)
    logits = served(input_ids=wide, lengths=[4, 3])["logits"]
    assert_close(logits, served(input_ids=wide[:, :4], lengths=[4, 3])["logits"])
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    with pytest.raises(Refused, match="longer than the 8 tokens"):
        served(input_ids=wide, lengths=[4, 9])


def test_labels_are_the_tasks_or_the_models_or_numbers(serve):
    model, served = serve("classifier")
    answers = served(**ROWS)
    best = answers["logits"].argmax(axis=1)
    assert answers["label"].tolist() == [str(one).encode() for one in best]
    assert_close(answers["probabilities"], tf.nn.softmax(answers["logits"]))
    names = ["bad", "so so", "good"]
    named = serve(model, task={"labels": names})[1](**ROWS)
    assert named["label"].tolist() == [names[one].encode() for one in best]
    model.name_classes(3, names)
    own = serve(model)[1](**ROWS)
    model.name_classes(3, None)
    assert own["label"].tolist() == named["label"].tolist()


def test_rows_of_examples(serve):
    """Official records are padded and carry their mask; those made by hand carry the ids alone."""

    _, served = serve("classifier")
    padded = {"input_ids": [2, 8, 3, 0, 0], "input_mask": [1, 1, 1, 0, 0], "segment_ids": [0, 1, 1, 0, 0]}
    rows = [example(input_ids=[2, 8, 9, 3]), example(**padded)]
    features = {"input_ids": np.array([[2, 8, 9, 3], [2, 8, 3, 0]]), "segment_ids": np.array([[0] * 4, [0, 1, 1, 0]])}
    features["input_mask"] = features["input_ids"] > 0
    found = served("classify", inputs=rows)
    assert_close(found["scores"], served("masked", **features)["probabilities"])
    assert found["classes"].tolist() == [[b"0", b"1", b"2"]] * 2
    model, regressor = serve("regressor")
    assert_close(regressor("regress", inputs=rows)["outputs"], model(features)[:, 0])


def test_sparse_weights_are_those_of_the_head(serve):
    model, served = serve("pretrainer")
    logits = model(FEATURES | {"masked_lm_positions": np.tile(np.arange(5), (2, 1))})["masked_lm_logits"]
    largest = np.where(MASK[:, :, None], logits, -np.inf).max(axis=1)
    expected = np.log1p(np.maximum(largest, 0))
    answers = served("sparse", **ROWS)
    dense = np.zeros_like(expected)
    for row, ids, weights in zip(dense, answers["ids"], answers["weights"]):
        np.add.at(row, ids, weights)
        assert np.all(np.diff(weights) <= 0)
    assert_close(dense, expected)
    assert answers["ids"].shape[1] == np.count_nonzero(expected, axis=1).max() < expected.shape[1]


@pytest.mark.parametrize("head", ["embedder", "cls embedder", "pretrainer"])
def test_fewer_dimensions_are_the_first_ones(serve, head):
    vectors = serve(head)[1](**ROWS)["embedding"][:, :5]
    if head == "embedder":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert_close(serve(head, dimensions=5)[1](**ROWS)["embedding"], vectors)


@pytest.mark.parametrize("head", ["embedder", "encoder"])
def test_vectors_of_tokens_are_the_encoders_and_0_at_padding(serve, head):
    model, served = serve(head)
    states = getattr(model, "encoder", model)(FEATURES)["sequence_output"]
    assert_close(served("tokens", **ROWS)["sequence_output"], states * MASK[:, :, None])


@pytest.mark.parametrize("head", ["classifier", "multiple choice", "spans"])
def test_padding_may_be_in_front_of_rows_with_their_summary_last(serve, head):
    model, served = serve(head, family="xlnet")
    random = np.random.default_rng(0)
    mask = np.arange(7) >= 7 - np.array([7, 3, 5, 1])[:, None]
    ids, segments = random.integers(5, 60, mask.shape) * mask, np.where(mask, random.integers(0, 2, mask.shape), 3)
    rows = {"input_ids": ids, "input_mask": 1 * mask, "segment_ids": segments}
    if head == "multiple choice":
        rows = {name: values[None] for name, values in rows.items()}
    # What stands behind a row is padding too, whatever its ids are.
    fill = {"input_ids": 7, "input_mask": 0, "segment_ids": 3}
    wide = {
        name: np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 2)], constant_values=fill[name])
        for name, values in rows.items()
    }
    found, expected = served("masked", **wide), model(rows)
    name = "start_log_probs" if head == "spans" else "logits"
    assert_close(found[name], expected[name] if head == "spans" else expected)


SIGNATURES = """
classifier | remembering xlnet | classify masked int64
spans | remembering xlnet | masked int64
classifier | xlnet | classify masked int64
# Words for masks come of its query stream, which exports do not compute.
permutation pretrainer | xlnet | tokens masked int64
exiting classifier | albert | early_exit classify masked int64
pretrainer | albert | fill_mask sparse sentence_order masked int64
"""


@pytest.mark.parametrize("line", [line for line in lines(SIGNATURES) if line[0] != "#"])
def test_every_model_offers_what_it_can_answer(make_model, line):
    head, family, names = line.split(" | ")
    found = make_exportable(make_model(head, family=family), ExportOptions(24)).signatures().keys()
    assert found == {"serving_default", *names.split()}
