"""Rows to the arrays a signature asks for, batches and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import messages
from serving.client.messages import Signature, TensorSpec
from tfrecords.base.errors import UserError

INT32, INT64, FLOAT, STRING = 3, 9, 1, 7


def signature(length=-1, **types) -> Signature:
    inputs = {
        name: TensorSpec(name, dtype, (-1,) if name == "lengths" else (-1, length)) for name, dtype in types.items()
    }
    return Signature(inputs, {}, "")


def test_lengths_model():
    arrays = messages.ids_inputs(signature(input_ids=INT32, lengths=INT32), [[5, 6, 7], [8]])
    assert sorted(arrays) == ["input_ids", "lengths"]
    np.testing.assert_array_equal(arrays["input_ids"], [[5, 6, 7], [8, 0, 0]])
    np.testing.assert_array_equal(arrays["lengths"], [3, 1])
    assert arrays["input_ids"].dtype == arrays["lengths"].dtype == np.int32


@pytest.mark.parametrize(("mask", "segments"), [("input_mask", "segment_ids"), ("attention_mask", "token_type_ids")])
def test_mask_and_segments_model(mask, segments):
    asked = signature(input_ids=INT64, **{mask: INT64, segments: INT64})
    arrays = messages.ids_inputs(asked, [[5, 6, 7], [8]], segments=[[0, 1, 1], [0]])
    np.testing.assert_array_equal(arrays[mask], [[1, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(arrays[segments], [[0, 1, 1], [0, 0, 0]])
    assert arrays[mask].dtype == np.int64
    np.testing.assert_array_equal(messages.ids_inputs(asked, [[5, 6]])[segments], [[0, 0]])


def test_a_mask_of_padding_sized_rows_is_not_all_ones():
    arrays = messages.ids_inputs(signature(length=6, input_ids=INT32, input_mask=FLOAT), [[5, 6, 7]])
    np.testing.assert_array_equal(arrays["input_mask"], [[1, 1, 1, 0, 0, 0]])


def test_length_buckets():
    asked = signature(input_ids=INT32)
    assert messages.ids_inputs(asked, [[1] * 9], length_buckets=(8, 16, 32))["input_ids"].shape == (1, 16)
    with pytest.raises(UserError, match="40 tokens is over the largest length bucket, 32"):
        messages.ids_inputs(asked, [[1] * 40], length_buckets=(8, 16, 32))


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="7 tokens does not fit the model's fixed length of 6"):
        messages.ids_inputs(signature(length=6, input_ids=INT32), [[1] * 7])
    with pytest.raises(UserError, match="does not take token ids"):
        messages.ids_inputs(signature(x=FLOAT), [[1]])
    with pytest.raises(UserError, match="'image'"):
        messages.ids_inputs(signature(input_ids=INT32, image=FLOAT), [[1]])
    with pytest.raises(UserError, match="does not take text"):
        messages.text_inputs(signature(input_ids=INT32), ["a"])
    with pytest.raises(UserError, match="choose one"):
        messages.predict_request({}, "m", version=3, label="stable")


def test_request_says_what_was_asked():
    request = messages.predict_request({"x": [1]}, "m", label="canary", signature="s", outputs=["y", "z"])
    assert request.model_spec.name == "m" and request.model_spec.version_label == "canary"
    assert request.model_spec.signature_name == "s" and list(request.output_filter) == ["y", "z"]
    assert not request.model_spec.HasField("version")


@given(
    rows=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=30),
    size=st.integers(1, 40),
)
def test_batches_and_back_is_the_identity(rows, size):
    numbers = list(messages.batches([len(row) for row in rows], size))
    assert all(len(batch) <= size for batch in numbers)
    assert sorted(np.concatenate(numbers).tolist()) == list(range(len(rows)))
    asked = signature(input_ids=INT32, lengths=INT32)
    parts = [messages.ids_inputs(asked, [rows[i] for i in batch]) for batch in numbers]
    joined = messages.join_batches(parts, numbers)
    for row, ids, length in zip(rows, joined["input_ids"], joined["lengths"], strict=True):
        assert ids[:length].tolist() == row and not ids[length:].any()


def test_rows_of_like_length_travel_together():
    numbers = list(messages.batches([9, 1, 8, 2], 2))
    assert [sorted(batch.tolist()) for batch in numbers] == [[1, 3], [0, 2]]


def test_an_output_that_is_not_a_row_each_cannot_be_joined():
    with pytest.raises(UserError, match="'total'"):
        messages.join_batches([{"total": np.float32(3)}], [np.array([0, 1])])
