"""Token ids in: what of a row is read, what is refused, and what each head's answers mean."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from serving.check import different_lengths
from serving.exportable.ways import batch_of_lengths, batch_of_mask
from serving.samples import sample_inputs
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")
Refused = tf.errors.InvalidArgumentError
WRONG = [
    *(("classifier", "masked", {name: value}, "is not in")
      for name, value in (("input_ids", -1), ("input_ids", 10**6), ("segment_ids", -1), ("segment_ids", 9))),
    ("classifier", "serving_default", {"lengths": [1]}, "lengths and input_ids differ in size"),
    ("classifier", "serving_default", {"lengths": [9] * 3}, "lengths and input_ids differ in size"),
    ("classifier", "masked", {"input_mask": np.ones((1, 9))}, "input_mask and input_ids differ in size"),
    ("classifier", "int64", {"input_mask": np.ones((4, 1))}, "input_mask and input_ids differ in size"),
    ("classifier", "masked", {"segment_ids": np.ones((3, 9))}, "segment_ids and input_ids differ in size"),
    ("spans", "serving_default", {"segment_ids": np.ones((1, 9))}, "segment_ids and input_ids differ in size"),
    ("multiple choice", "serving_default", {"lengths": [[9] * 4]}, "lengths and input_ids differ in size"),
    ("classifier", "serving_default", {"input_ids": np.zeros((4, 0)), "lengths": [0] * 4}, "without a single token"),
    ("encoder", "serving_default", {"input_ids": np.ones((1, 49)), "lengths": [49]}, "longer than the 48 tokens"),
    ("classifier", "classify", {"inputs": [tf.train.Example().SerializeToString()]}, "Example has no input_ids"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "signature", "wrong", "sentence"), WRONG)
def test_what_no_model_can_read_is_refused(serve, head, signature, wrong, sentence):
    _, served = serve(head)
    inputs = sample_inputs(served.exportable, served.signatures[signature], 9, 4, seed=1)
    for name, value in wrong.items():
        if np.ndim(value):
            inputs[name] = value
        else:
            inputs[name] = np.array(inputs[name])
            inputs[name][1, 3] = value
    with pytest.raises(Refused, match=sentence):
        served(signature, **inputs)


@pytest.mark.parametrize(
    ("head", "options", "sentence"),
    [
        ("classifier", {"task": {"labels": ["a", "b"]}}, r"names 2 labels \(a, b\), the model has 3 classes"),
        ("token classifier", {"task": {"labels": ["a", "b"]}}, r"names 2 labels \(a, b\), the model has 4 classes"),
        ("embedder", {"dimensions": 17}, "--dimensions=17 must be from 1 to the 16 numbers"),
        ("classifier", {"dimensions": 3}, "AlbertClassifier gives none"),
        ("exiting classifier", {"exit_rule": "learned"}, "--learned_exit"),
        ("spans", {"exit_rule": "movement"}, "AlbertSpanPredictor"),
        ("embedder", {"family": "xlnet", "exit_rule": "movement"}, "movement is not offered with relative positions"),
    ],
)
def test_what_no_export_can_have_is_refused(serve, head, options, sentence):
    with pytest.raises(UserError, match=sentence):
        serve(head, **options)


@pytest.mark.parametrize("head", ["spans", "joint spans"])
def test_a_row_has_the_same_spans_alone_and_next_to_a_longer_one(serve, head):
    model, served = serve(head)
    long = sample_inputs(served.exportable, served.signatures["serving_default"], 14, seed=2)
    # Rows with 3 and with no places of an answer.
    for size, segments, count in ((5, [0, 0, 1, 1, 1], 3 + 2 + 1), (3, [0, 0, 0], 0)):
        row = {"input_ids": [[2, 8, 9, 7, 3][:size]], "lengths": [size], "segment_ids": [segments]}
        alone = served("serving_default", **row)
        padding = {name: [(0, 0), (0, 14 - size)][: np.ndim(values)] for name, values in row.items()}
        both = {name: np.concatenate([np.pad(row[name], padding[name]), long[name]]) for name in row}
        together = served("serving_default", **both)
        assert alone["num_spans"].tolist() == together["num_spans"][:1].tolist() == [count]
        for name in ("starts", "ends", "scores", "no_answer_score"):
            assert alone[name].shape == together[name][:1].shape
            np.testing.assert_allclose(together[name][:1], alone[name], atol=2e-5)
            assert np.abs(together[name]).max() <= 2e4
        assert alone["scores"].shape == (1, model.start_top * model.end_top)
        assert set(alone["scores"][0, count:]) == {np.float32(-1e4)} and not alone["ends"][0, count:].any()
        assert alone["no_answer_score"][0] > 9e3 or count or model.joint


def test_spans_lie_in_the_second_segment_and_are_in_order(serve):
    _, served = serve("spans")
    segments = np.array([[0] * 4 + [1] * 8])
    answers = served("serving_default", input_ids=np.arange(5, 17)[None], lengths=[12], segment_ids=segments)
    count = answers["num_spans"][0]
    starts, ends = answers["starts"][0, :count], answers["ends"][0, :count]
    assert count == 8 * 9 // 2 and (starts >= 4).all() and (ends >= starts).all()
    assert np.all(np.diff(answers["scores"][0, :count]) <= 0)


@given(row=st.lists(st.integers(3, 9), min_size=1, max_size=8), own=st.integers(0, 3), added=st.integers(0, 4))
def test_a_mask_is_read_rightly_behind_the_clients_padding_and_the_servers(row, own, added):
    ids = [2, *row]
    mask = [1] * len(ids) + [0] * own + [1] * added
    padded = ids + [0] * own + [2] * added
    # A longer row below it, so that no column is cut off.
    full = [2] + [5] * (len(padded) - 1)
    rows = batch_of_mask(*map(tf.constant, ([padded, full], [mask, [1] * len(mask)], [[1] * len(mask)] * 2)))
    assert rows.mask.numpy()[0].tolist() == [1] * len(ids) + [0] * (own + added)
    assert rows.lengths.numpy().tolist() == [len(ids), len(full)]
    assert rows.input_ids.numpy()[0, len(ids) :].sum() == 0 == rows.segment_ids.numpy()[0, len(ids) :].sum()


def test_lengths_that_lie_are_brought_into_the_row():
    rows = batch_of_lengths(tf.constant([[2, 5, 3]] * 2), tf.constant([0, 9]))
    assert rows.lengths.numpy().tolist() == [1, 3]


def test_columns_that_no_row_needs_do_not_count(serve):
    """Neither against the longest row, nor in the answer."""
    _, served = serve("classifier", max_seq_length=8)
    wide = np.array([[2, 8, 9, 3, *[2] * 6]] * 2)
    logits = served("serving_default", input_ids=wide, lengths=[4, 3])["logits"]
    exact = served("serving_default", input_ids=wide[:, :4], lengths=[4, 3])["logits"]
    np.testing.assert_allclose(logits, exact, atol=1e-6)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    with pytest.raises(Refused, match="longer than the 8 tokens"):
        served("serving_default", input_ids=wide, lengths=[4, 9])


def test_labels_are_the_tasks_or_numbers(serve):
    model, served = serve("classifier")
    inputs = different_lengths(served.exportable)
    answers = served("serving_default", **inputs)
    best = answers["logits"].argmax(axis=1)
    assert answers["label"].tolist() == [str(one).encode() for one in best]
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(answers["logits"]), atol=1e-6)
    _, named = serve(model, task={"labels": ["bad", "so so", "good"]})
    names = [b"bad", b"so so", b"good"]
    assert named("serving_default", **inputs)["label"].tolist() == [names[one] for one in best]
    _, tags = serve("token classifier", task={"labels": ["O", "PER", "LOC", "ORG"]})
    answers = tags("serving_default", input_ids=[[2, 8, 9, 3, 2], [2, 8, 9, 7, 3]], lengths=[4, 5])
    best = answers["logits"].argmax(axis=-1)
    expected = np.array([b"O", b"PER", b"LOC", b"ORG"], object)[best]
    # No padding is labelled.
    expected[0, 4] = b""
    assert answers["labels"].tolist() == expected.tolist()
    assert not answers["logits"][0, 4].any() and not answers["probabilities"][0, 4].any()
    np.testing.assert_allclose(answers["probabilities"][1], tf.nn.softmax(answers["logits"][1]), atol=1e-6)


def test_a_choice_without_tokens_is_never_chosen(serve):
    model, served = serve("multiple choice", num_choices=3)
    ids = np.array([[[2, 7, 3], [2, 8, 3], [2, 9, 3]]])
    full = served("serving_default", input_ids=ids, lengths=[[3, 3, 3]], segment_ids=0 * ids)
    best = int(full["choice"][0])
    assert best == full["logits"][0].argmax()
    np.testing.assert_allclose(full["logits"], model({"input_ids": ids}), atol=1e-5)
    np.testing.assert_allclose(full["probabilities"], tf.nn.softmax(full["logits"]), atol=1e-6)
    lengths = np.array([[3, 3, 3]])
    lengths[0, best] = 0
    fewer = served("serving_default", input_ids=ids, lengths=lengths, segment_ids=0 * ids)
    assert fewer["choice"][0] != best and fewer["probabilities"][0, best] == 0 and fewer["logits"][0, best] == -1e4
    np.testing.assert_allclose(fewer["probabilities"].sum(), 1, atol=1e-6)


def test_rows_of_examples(serve):
    """Official records are padded and carry their mask; those made by hand carry the ids alone."""
    _, served = serve("classifier")

    def example(**lists):
        example = tf.train.Example()
        for name, values in lists.items():
            example.features.feature[name].int64_list.value.extend(values)
        return example.SerializeToString()

    bare, padded = [2, 8, 9, 3], {"input_ids": [2, 8, 3, 0, 0], "input_mask": [1, 1, 1, 0, 0]}
    rows = [example(input_ids=bare), example(**padded, segment_ids=[0, 1, 1, 0, 0])]
    scores = served("classify", inputs=rows)
    ids, segments = np.array([bare, [2, 8, 3, 0]]), np.array([[0] * 4, [0, 1, 1, 0]])
    expected = served("masked", input_ids=ids, input_mask=ids > 0, segment_ids=segments)["probabilities"]
    np.testing.assert_allclose(scores["scores"], expected, atol=1e-6)
    assert scores["classes"].tolist() == [[b"0", b"1", b"2"]] * 2
    model, regressor = serve("regressor")
    value = regressor("regress", inputs=rows)["outputs"]
    expected = model({"input_ids": ids, "input_mask": ids > 0, "segment_ids": segments})[:, 0]
    np.testing.assert_allclose(value, expected, atol=1e-5)


@pytest.mark.parametrize("head", ["pretrainer", "words alone"])
def test_masked_positions_are_filled_as_by_the_masked_words_head(serve, head):
    model, served = serve(head)
    rows = {"input_ids": np.array([[2, 8, 9, 3], [2, 8, 3, 0]]), "lengths": np.array([4, 3])}
    segments = np.array([[0, 0, 1, 1], [0, 1, 1, 0]])
    positions = {"masked_lm_positions": np.array([[1, 0], [2, 1]])}
    features = positions | {"input_ids": rows["input_ids"], "input_mask": 1 * (rows["input_ids"] > 0)}
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(model(features)["masked_lm_logits"]))
    filled = served("fill_mask", **rows, **positions)
    np.testing.assert_array_equal(filled["ids"], np.argsort(-expected, axis=-1, kind="stable")[..., :5])
    np.testing.assert_allclose(filled["probabilities"], -np.sort(-expected)[..., :5], atol=1e-5)
    # A position behind its row fails no other row.
    far = served("fill_mask", **rows, masked_lm_positions=[[1, 0], [30, 1]])
    np.testing.assert_allclose(far["probabilities"][0], filled["probabilities"][0], atol=1e-6)
    assert ("sentence_order" in served.signatures) == (head == "pretrainer")
    if head == "pretrainer":
        logits = model(features | {"segment_ids": segments})["pair_logits"]
        order = served("sentence_order", **rows, segment_ids=segments)["probabilities"]
        np.testing.assert_allclose(order, keras.ops.softmax(logits), atol=1e-5)


def test_sparse_weights_are_those_of_the_masked_words_head(serve):
    model, served = serve("pretrainer")
    ids, lengths = np.array([[2, 9, 14, 7, 3], [2, 11, 3, 0, 0]], np.int32), np.array([5, 3], np.int32)
    mask = (np.arange(5) < lengths[:, None]).astype(np.int32)
    features = {"input_ids": ids, "input_mask": mask, "masked_lm_positions": np.tile(np.arange(5), (2, 1))}
    logits = keras.ops.convert_to_numpy(model(features)["masked_lm_logits"])
    expected = np.log1p(np.maximum(np.where(mask[:, :, None] > 0, logits, -np.inf).max(axis=1), 0))
    answers = served("sparse", input_ids=ids, lengths=lengths)
    dense = np.zeros_like(expected)
    for row in range(2):
        np.add.at(dense[row], answers["ids"][row], answers["weights"][row])
        assert np.all(np.diff(answers["weights"][row]) <= 0)
    np.testing.assert_allclose(dense, expected, atol=2e-5)
    assert answers["ids"].shape[1] == np.count_nonzero(expected, axis=1).max() < expected.shape[1]


@pytest.mark.parametrize("head", ["embedder", "cls embedder", "pretrainer"])
def test_fewer_dimensions_are_the_first_ones(serve, head):
    _, whole = serve(head)
    _, cut = serve(head, dimensions=5)
    inputs = different_lengths(whole.exportable)
    vectors = whole("serving_default", **inputs)["embedding"][:, :5]
    if head == "embedder":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(cut("serving_default", **inputs)["embedding"], vectors, atol=1e-5)


@pytest.mark.parametrize("head", ["embedder", "encoder"])
def test_vectors_of_tokens_are_the_encoders_and_0_at_padding(serve, head):
    model, served = serve(head)
    rows = different_lengths(served.exportable)
    mask = np.arange(48) < rows["lengths"][:, None]
    states = getattr(model, "encoder", model)({"input_ids": rows["input_ids"] * mask, "input_mask": 1 * mask})
    found = served("tokens", **rows)["sequence_output"]
    expected = keras.ops.convert_to_numpy(states["sequence_output"]) * mask[:, :, None]
    np.testing.assert_allclose(found, expected, atol=2e-5)
