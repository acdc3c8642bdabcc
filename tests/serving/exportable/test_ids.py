"""Token ids in: every head answers as its Keras model, through every signature, whatever a server padded with."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.check import different_lengths, expected_answers
from serving.exportable.ways import batch_of_lengths, batch_of_mask
from serving.samples import sample_inputs
from tfrecords.base.errors import UserError

DISTINCT = ["classifier", "spans", "multiple choice", "token classifier", "embedder"]
HEADS = [*DISTINCT, "regressor", "joint spans", "cls embedder", "encoder", "pretrainer"]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.few(3)
def test_equals_the_keras_model_ondifferent_lengths(serve, head):
    model, served = serve(head)
    inputs = different_lengths(served.exportable)
    answers = served("serving_default", **inputs)
    expected = expected_answers(model, inputs)
    assert expected and expected.keys() <= answers.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(np.maximum(answers[name], -1e9), np.maximum(values, -1e9), atol=2e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("input_ids", -1), ("input_ids", 10**6), ("segment_ids", -1), ("segment_ids", 9)]
)
def test_a_value_that_no_table_has_is_refused(serve, name, value):
    _, served = serve("classifier")
    inputs = sample_inputs(served.exportable, served.signatures["masked"], 9, 2, seed=1)
    inputs[name] = np.array(inputs[name])
    inputs[name][1, 3] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        served("masked", **inputs)


PADDED = [(head, name) for head in DISTINCT for name in ("serving_default", "masked")] + [
    ("classifier", "int64"),
    ("multiple choice", "int64"),
    ("embedder", "tokens"),
    ("pretrainer", "fill_mask"),
    ("pretrainer", "sentence_order"),
    ("pretrainer", "sparse"),
    ("exiting classifier", "early_exit"),
]


@pytest.mark.parametrize(("head", "signature"), PADDED)
@pytest.mark.few(3)
def test_what_a_server_pads_with_changes_nothing(serve, head, signature):
    """A server makes requests of one batch equally long with each request's own first elements."""
    _, served = serve(head)
    short = _padded_by_the_client(sample_inputs(served.exportable, served.signatures[signature], 9, 2, seed=1))
    long = sample_inputs(served.exportable, served.signatures[signature], 14, seed=2)
    joined = {name: np.concatenate([_pad_as_a_server(short[name], long[name].shape), long[name]]) for name in short}
    together = served(signature, **joined)
    for rows, request in ((slice(0, 2), short), (slice(2, 3), long)):
        alone = served(signature, **request)
        for name, values in alone.items():
            found = together[name][rows][tuple(slice(size) for size in values.shape)]
            if values.dtype == object:
                assert found.tolist() == values.tolist(), name
                continue
            np.testing.assert_allclose(found, values, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("head", ["spans", "joint spans"])
def test_a_row_has_the_same_spans_alone_and_next_to_a_longer_one(serve, head):
    model, served = serve(head)
    long = sample_inputs(served.exportable, served.signatures["serving_default"], 14, seed=2)
    # Rows with 3 and with no places of an answer.
    for size, segments, count in ((5, [0, 0, 1, 1, 1], 3 + 2 + 1), (3, [0, 0, 0], 0)):
        row = {"input_ids": [[2, 8, 9, 7, 3][:size]], "lengths": [size], "segment_ids": [segments]}
        alone = served("serving_default", **row)
        both = {
            name: np.concatenate([_pad_as_a_server(np.array(row[name]), long[name].shape), long[name]]) for name in row
        }
        together = served("serving_default", **both)
        assert alone["num_spans"].tolist() == together["num_spans"][:1].tolist() == [count]
        for name in ("starts", "ends", "scores", "no_answer_score"):
            assert alone[name].shape == together[name][:1].shape
            np.testing.assert_allclose(together[name][:1], alone[name], atol=2e-5)
            assert np.abs(together[name]).max() <= 2e4
        assert alone["scores"].shape == (1, model.start_top * model.end_top)
        assert set(alone["scores"][0, count:]) == {np.float32(-1e4)} and not alone["ends"][0, count:].any()
        assert alone["no_answer_score"][0] > 9e3 or count or model.joint


def _padded_by_the_client(inputs: dict) -> dict:
    """The second row shorter, with another first id than the first row's; of choices the last one empty."""
    ids = inputs["input_ids"]
    lengths = np.full(ids.shape[:-1], ids.shape[-1])
    lengths[1], ids[1, ..., 0] = 5, 7
    if lengths.ndim == 2:
        lengths[:, -1] = 0
    mask = np.arange(ids.shape[-1]) < lengths[..., None]
    own = {"lengths": lengths, "input_mask": mask.astype(ids.dtype)}
    return inputs | {"input_ids": ids * mask} | {name: value for name, value in own.items() if name in inputs}


def _pad_as_a_server(values: np.ndarray, shape: tuple) -> np.ndarray:
    padding = [(0, wanted - size) if axis else (0, 0) for axis, (size, wanted) in enumerate(zip(values.shape, shape))]
    return np.pad(values, padding, constant_values=values.flat[0])


@settings(max_examples=40, deadline=None)
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the 8 tokens"):
        served("serving_default", input_ids=wide, lengths=[4, 9])


WRONG_SIZES = [
    ("classifier", "serving_default", {"lengths": [1]}),
    ("classifier", "serving_default", {"lengths": [9] * 3}),
    ("classifier", "masked", {"input_mask": np.ones((1, 9))}),
    ("classifier", "int64", {"input_mask": np.ones((4, 1))}),
    ("classifier", "masked", {"segment_ids": np.ones((3, 9))}),
    ("spans", "serving_default", {"segment_ids": np.ones((1, 9))}),
    ("multiple choice", "serving_default", {"lengths": [[9] * 4]}),
]


@pytest.mark.parametrize(("head", "signature", "wrong"), WRONG_SIZES)
def test_inputs_of_unlike_sizes_are_named(serve, head, signature, wrong):
    _, served = serve(head)
    inputs = sample_inputs(served.exportable, served.signatures[signature], 9, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{next(iter(wrong))} and input_ids differ in size"):
        served(signature, **inputs | wrong)


def test_rows_without_columns_are_named(serve):
    _, served = serve("classifier")
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows without a single token"):
        served("serving_default", input_ids=np.zeros((2, 0)), lengths=[0, 0])


@pytest.mark.parametrize("head", ["classifier", "token classifier"])
def test_labels_of_another_count_than_the_classes_are_refused(serve, head):
    with pytest.raises(UserError, match=r"names 2 labels \(a, b\), the model has [34] classes"):
        serve(head, task={"labels": ["a", "b"]})


def test_masked_positions_behind_the_row_fail_nobody(serve):
    _, served = serve("pretrainer")
    ids = {"input_ids": [[2, 8, 9, 3], [2, 8, 3, 0]], "lengths": [4, 3]}
    far, near = (served("fill_mask", **ids, masked_lm_positions=[[1], [last]]) for last in (30, 2))
    np.testing.assert_allclose(far["probabilities"][0], near["probabilities"][0], atol=1e-6)


@pytest.mark.parametrize("head", DISTINCT)
def test_pairs_take_segments_and_single_texts_do_not(serve, head):
    _, served = serve(head)
    takes = "segment_ids" in served.signatures["serving_default"].inputs
    assert takes == (head in ("spans", "joint spans", "multiple choice"))


def test_a_task_of_pairs_reads_segments(serve):
    _, of_pairs = serve("classifier", task={"inputs": ["premise", "hypothesis"]})
    assert "segment_ids" in of_pairs.signatures["serving_default"].inputs
    one, other = ([[0, 0, 0, 0]], [[0, 0, 1, 1]])
    logits = [
        of_pairs("serving_default", input_ids=[[2, 8, 9, 3]], lengths=[4], segment_ids=segments)["logits"]
        for segments in (one, other)
    ]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3


def test_labels_are_the_tasks_or_numbers(serve):
    model, served = serve("classifier")
    inputs = different_lengths(served.exportable)
    answers = served("serving_default", **inputs)
    assert answers["label"].tolist() == [str(best).encode() for best in answers["logits"].argmax(axis=1)]
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, atol=1e-6)
    _, named = serve(model, task={"labels": ["bad", "so so", "good"]})
    label = named("serving_default", **inputs)["label"]
    assert label.tolist() == [[b"bad", b"so so", b"good"][best] for best in answers["logits"].argmax(axis=1)]


def test_tagging_labels_every_token_and_no_padding(serve):
    _, served = serve("token classifier", task={"labels": ["O", "PER", "LOC", "ORG"]})
    answers = served("serving_default", input_ids=[[2, 8, 9, 3, 2]], lengths=[4])
    best = answers["logits"][0, :4].argmax(axis=-1)
    assert answers["labels"].tolist() == [[[b"O", b"PER", b"LOC", b"ORG"][index] for index in best]]
    answers = served("serving_default", input_ids=[[2, 8, 9, 3, 2], [2, 8, 9, 7, 3]], lengths=[4, 5])
    assert answers["labels"][0, 4] == b"" and answers["probabilities"][0, 4].tolist() == [0] * 4


def test_a_choice_without_tokens_is_never_chosen(serve):
    _, served = serve("multiple choice", num_choices=3)
    ids = np.array([[[2, 7, 3], [2, 8, 3], [2, 9, 3]]])
    full = served("serving_default", input_ids=ids, lengths=[[3, 3, 3]], segment_ids=0 * ids)
    best = int(full["choice"][0])
    lengths = np.array([[3, 3, 3]])
    lengths[0, best] = 0
    fewer = served("serving_default", input_ids=ids, lengths=lengths, segment_ids=0 * ids)
    assert fewer["choice"][0] != best and fewer["probabilities"][0, best] == 0
    np.testing.assert_allclose(fewer["probabilities"].sum(), 1, atol=1e-6)


def test_spans_lie_in_the_second_segment_and_are_in_order(serve):
    _, served = serve("spans")
    segments = np.array([[0] * 4 + [1] * 8])
    answers = served("serving_default", input_ids=np.arange(5, 17)[None], lengths=[12], segment_ids=segments)
    count = answers["num_spans"][0]
    starts, ends = answers["starts"][0, :count], answers["ends"][0, :count]
    assert count == 8 * 9 // 2 and (starts >= 4).all() and (ends >= starts).all()
    assert np.all(np.diff(answers["scores"][0, :count]) <= 0)


def test_rows_of_examples(serve):
    """Official records are padded and carry their mask; those made by hand carry the ids alone."""
    _, served = serve("classifier")

    def example(**lists):
        example = tf.train.Example()
        for name, values in lists.items():
            example.features.feature[name].int64_list.value.extend(values)
        return example.SerializeToString()

    bare, masked = [2, 8, 9, 3], {"input_ids": [2, 8, 3, 0, 0], "input_mask": [1, 1, 1, 0, 0], "segment_ids": [0] * 5}
    scores = served("classify", inputs=[example(input_ids=bare), example(**masked)])
    expected = served("serving_default", input_ids=[bare, [2, 8, 3, 0]], lengths=[4, 3])
    np.testing.assert_allclose(scores["scores"], expected["probabilities"], atol=1e-6)
    assert scores["classes"].tolist() == [[b"0", b"1", b"2"]] * 2
    _, regressor = serve("regressor")
    value = regressor("regress", inputs=[example(input_ids=bare)])["outputs"]
    by_ids = regressor("serving_default", input_ids=[bare], lengths=[4])["value"]
    np.testing.assert_allclose(value, by_ids, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Example has no input_ids"):
        served("classify", inputs=[example(ids=[1])])


def test_sparse_weights_are_those_of_the_masked_words_head(serve):
    model, served = serve("pretrainer")
    ids, lengths = np.array([[2, 9, 14, 7, 3], [2, 11, 3, 0, 0]], np.int32), np.array([5, 3], np.int32)
    mask = (np.arange(5) < lengths[:, None]).astype(np.int32)
    features = {
        "input_ids": ids,
        "input_mask": mask,
        "masked_lm_positions": np.tile(np.arange(5, dtype=np.int32), (2, 1)),
    }
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
@pytest.mark.few(2)
def test_fewer_dimensions_are_the_first_ones(serve, head):
    _, whole = serve(head)
    _, cut = serve(head, dimensions=5)
    inputs = different_lengths(whole.exportable)
    vectors = whole("serving_default", **inputs)["embedding"][:, :5]
    if head == "embedder":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(cut("serving_default", **inputs)["embedding"], vectors, atol=1e-5)


def test_dimensions_that_there_are_not(serve):
    with pytest.raises(UserError, match="--dimensions=17 must be from 1 to the 16 numbers"):
        serve("embedder", dimensions=17)
    with pytest.raises(UserError, match="AlbertClassifier gives none"):
        serve("classifier", dimensions=3)
