"""Token ids in: what of a row is read, what is refused, and what each head's answers mean."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from serving.exportable.inputs import batch_of_mask
from serving.exportable.samples import sample_inputs
from tests.refusals import refused
from tests.serving.conftest import assert_close, example

pytestmark = pytest.mark.usefixtures("eagerly")
Refused = tf.errors.InvalidArgumentError
ROWS = {"input_ids": np.array([[2, 9, 14, 7, 3], [2, 11, 3, 0, 0]]), "lengths": np.array([5, 3])}
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
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


@pytest.mark.parametrize("head, signature, wrong, sentence", [line.split(" | ") for line in WRONG.strip().splitlines()])
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


@pytest.mark.parametrize("head, options, sentence", [x.split(" | ") for x in IMPOSSIBLE.strip().splitlines()])
def test_what_no_export_can_have_is_refused(serve, head, options, sentence):
    with refused(sentence):
        serve(head, **json.loads(options))


@pytest.mark.parametrize("head", ["spans", "joint spans"])
def test_a_rows_spans_lie_in_its_second_segment_best_first_and_are_the_same_next_to_longer_rows(serve, head):
    model, served = serve(head)
    # With how many spans: every place of the second segment, with all behind it.
    rows = {36: [0] * 4 + [1] * 8, 6: [0, 0, 1, 1, 1], 0: [0, 0, 0]}
    ids, segments = np.tile(np.arange(5, 17), (3, 1)), tf.ragged.constant([*rows.values()]).to_tensor().numpy()
    together = served(input_ids=ids, lengths=[12, 5, 3], segment_ids=segments)
    for row, (count, own) in enumerate(rows.items()):
        alone = served(input_ids=ids[:1, : len(own)], lengths=[len(own)], segment_ids=[own])
        assert_close(together, {name: alone[name] for name in alone if "log" not in name}, slice(row, row + 1))
        starts, ends, scores = (alone[name][0] for name in ("starts", "ends", "scores"))
        assert alone["num_spans"] == count and scores.size == model.start_top * model.end_top
        assert (starts >= len(own) - sum(own))[:count].all() and (ends >= starts)[:count].all()
        assert np.all(np.diff(scores) <= 0) and not ends[count:].any() and set(scores[count:]) == {np.float32(-1e4)}
        assert alone["no_answer_score"] > 9e3 or count or model.joint
        assert np.abs(together["scores"]).max() <= 2e4 >= np.abs(together["no_answer_score"]).max()


@given(row=st.lists(st.integers(3, 9), min_size=1, max_size=8), own=st.integers(0, 3), added=st.integers(0, 4))
def test_a_mask_is_read_rightly_behind_the_clients_padding_and_the_servers(row, own, added):
    ids = np.array([[2, *row, *[0] * own, *[2] * added]])
    mask = np.array([[1] * (1 + len(row)) + [0] * own + [1] * added])
    # A longer row below it, so that no column is cut off.
    full = np.full_like(ids, 5) - 3 * (np.arange(ids.size) == 0)
    rows = batch_of_mask(*(tf.constant(np.concatenate(two)) for two in ((ids, full), (mask, full > 0), (full, full))))
    size = 1 + len(row)
    assert rows.mask.numpy()[0].tolist() == [1] * size + [0] * (own + added)
    assert rows.lengths.numpy().tolist() == [size, ids.size]
    assert rows.input_ids.numpy()[0, size:].sum() == 0 == rows.segment_ids.numpy()[0, size:].sum()


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
    tags = ["O", "PER", "LOC", "ORG"]
    answers = serve("token classifier", task={"labels": tags})[1](**ROWS)
    # No padding is labelled.
    expected = np.array(tags, bytes)[answers["logits"].argmax(axis=-1)]
    assert answers["labels"].tolist() == np.where(MASK, expected, b"").tolist()
    assert not answers["logits"][1, 3:].any()
    assert_close(answers["probabilities"], tf.nn.softmax(answers["logits"]) * MASK[:, :, None])


def test_a_choice_without_tokens_is_never_chosen(serve):
    _, served = serve("multiple choice", num_choices=3)
    ids, lengths = np.array([[[2, 7, 3], [2, 8, 3], [2, 9, 3]]]), np.array([[3, 3, 3]])
    full = served(input_ids=ids, lengths=lengths, segment_ids=0 * ids)
    best = full["logits"][0].argmax()
    assert full["choice"] == best
    lengths[0, best] = 0
    fewer = served(input_ids=ids, lengths=lengths, segment_ids=0 * ids)
    assert fewer["choice"] != best and fewer["probabilities"][0, best] == 0 and fewer["logits"][0, best] == -1e4
    for answers in (full, fewer):
        assert_close(answers["probabilities"], tf.nn.softmax(answers["logits"]))


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


@pytest.mark.parametrize("head", ["pretrainer", "words alone"])
def test_masked_positions_are_filled_as_by_the_masked_words_head(serve, head):
    model, served = serve(head)
    positions = np.array([[1, 0], [2, 1]])
    expected = keras.ops.softmax(model(FEATURES | {"masked_lm_positions": positions})["masked_lm_logits"])
    best, ids = tf.math.top_k(expected, 5)
    filled = served("fill_mask", **ROWS, masked_lm_positions=positions)
    assert_close(filled, {"ids": ids.numpy(), "probabilities": best.numpy()})
    # A position behind its row fails no other row.
    far = served("fill_mask", **ROWS, masked_lm_positions=[[1, 0], [30, 1]])
    assert_close(far["probabilities"][0], best[0])
    assert ("sentence_order" in served.signatures) == (head == "pretrainer")


def test_order_and_sparse_weights_are_those_of_the_heads(serve):
    model, served = serve("pretrainer")
    positions = {"masked_lm_positions": np.tile(np.arange(5), (2, 1))}
    order = served("sentence_order", **ROWS, segment_ids=SEGMENTS)["probabilities"]
    assert_close(order, keras.ops.softmax(model(FEATURES | positions | {"segment_ids": SEGMENTS})["pair_logits"]))
    logits = model(FEATURES | positions)["masked_lm_logits"]
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
