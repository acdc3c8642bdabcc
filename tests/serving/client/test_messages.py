"""Rows to the arrays a signature asks for, batches and back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import messages
from serving.client.messages import Signature, TensorSpec
from tests.refusals import refused
from tfrecords.base.columns import batches

DTYPES = {"int32": 3, "int64": 9, "float32": 1}


def signature(text):
    """Of inputs as `name:dtype` or, of a fixed length, `name:dtype:length`."""
    inputs = {}
    for one in text.split():
        name, dtype, *length = one.split(":")
        shape = (-1,) if name == "lengths" else (-1, int(*length or [-1]))
        inputs[name] = TensorSpec(name, DTYPES[dtype], shape)
    return Signature(inputs, {}, "")


ROWS, SEGMENTS = [[5, 6, 7], [8]], {"segments": [[0, 1, 1], [0]]}
IDS = '"input_ids": [[5, 6, 7], [8, 0, 0]]'


@pytest.mark.parametrize(
    "inputs, options, arrays",
    [
        ("input_ids:int32 lengths:int32", {}, f'{{{IDS}, "lengths": [3, 1]}}'),
        (
            "input_ids:int64 input_mask:int64 segment_ids:int64", SEGMENTS,
            f'{{{IDS}, "input_mask": [[1, 1, 1], [1, 0, 0]], "segment_ids": [[0, 1, 1], [0, 0, 0]]}}'
        ),
        (
            "input_ids:int32 attention_mask:int64 token_type_ids:int32", SEGMENTS,
            f'{{{IDS}, "attention_mask": [[1, 1, 1], [1, 0, 0]], "token_type_ids": [[0, 1, 1], [0, 0, 0]]}}'
        ),
        ("input_ids:int32 segment_ids:int32", {}, f'{{{IDS}, "segment_ids": [[0, 0, 0], [0, 0, 0]]}}'),
        (
            "input_ids:int32:4 input_mask:float32", {},
            '{"input_ids": [[5, 6, 7, 0], [8, 0, 0, 0]], "input_mask": [[1, 1, 1, 0], [1, 0, 0, 0]]}'
        )
    ]
)  # fmt: skip
def test_rows_become_what_the_signature_asks_for(inputs, options, arrays):
    found = messages.ids_inputs(signature(inputs), ROWS, **options)
    assert {name: array.tolist() for name, array in found.items()} == json.loads(arrays)
    assert [f"{name}:{array.dtype}" for name, array in found.items()] == inputs.replace(":4", "").split()


@pytest.mark.parametrize(
    "inputs, words",
    [
        ("input_ids:int32:2", "3 tokens does not fit the model's fixed length of 2"),
        ("x:float32", "does not take token ids"),
        ("input_ids:int32 image:float32", "'image'"),
    ],
)
def test_what_does_not_fit_is_refused(inputs, words):
    with refused(words):
        messages.ids_inputs(signature(inputs), ROWS)
    with refused("does not take text"):
        messages.text_inputs(signature(inputs), ["a"])
    with refused("choose one"):
        messages.predict_request({}, "m", version=3, label="stable")


@given(
    rows=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=30),
    max_tokens=st.integers(1, 40),
    max_rows=st.integers(1, 40),
)
def test_batches_hold_every_row_once_within_their_bounds_and_join_to_the_whole(rows, max_tokens, max_rows):
    sizes = [len(row) for row in rows]
    numbers = list(batches(sizes, max_tokens, max_rows))
    for batch in numbers:
        assert len(batch) == 1 or (len(batch) <= max_rows and sum(sizes[row] for row in batch) <= max_tokens)
    places = np.concatenate(numbers).tolist()
    assert sorted(places) == list(range(len(rows)))
    assert [sizes[row] for row in places] == sorted(sizes)
    asked = signature("input_ids:int32 lengths:int32")
    parts = [messages.ids_inputs(asked, [rows[i] for i in batch]) for batch in numbers]
    joined = messages.join_batches(parts, numbers)
    for row, ids, length in zip(rows, joined["input_ids"], joined["lengths"], strict=True):
        assert ids[:length].tolist() == row and not ids[length:].any()
