"""Attention to the tokens nearby, against the full square with a mask, in the layers and in whole models."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import softmax

from albert_tf import AlbertEncoder
from albert_tf.extensions.window import attend_nearby
from tests.albert_tf.depth_cases import TOKENS, WINDOW, small
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")


def reference(query, key, value, bias, allowed):
    """The square of all pairs, [batch, heads, length, length], with those masked that are not allowed."""
    scores = query @ key.transpose(0, 1, 3, 2) + bias
    return softmax(np.where(allowed, scores, -1e30), axis=-1) @ value


def seen(length, window):
    places = np.arange(length)
    return (np.abs(places[:, None] - places) <= window) | (places == 0) | (places == 0)[:, None]


def random(length, seed, size=4):
    generator = np.random.default_rng(seed)
    query, key, value = generator.normal(size=(3, 2, 2, length, size)).astype("float32")
    lengths = generator.integers(1, length + 1, 2)
    bias = np.where(np.arange(length) < lengths[:, None], 0, -10000.0).astype("float32")[:, None, None]
    return query, key, value, bias


def score(query, key):
    return keras.ops.matmul(query, keras.ops.swapaxes(key, -1, -2))


def weigh(scores, part):
    return keras.ops.softmax(scores, axis=-1)


@settings(max_examples=20)
@given(length=st.integers(1, 23), window=st.integers(1, 9), is_masked=st.booleans())
def test_nearby_is_the_masked_square(length, window, is_masked):
    query, key, value, bias = random(length, length)
    found = attend_nearby(query, key, value, bias if is_masked else None, score, weigh, window, -10000.0)
    expected = reference(query, key, value, bias * is_masked, seen(length, window))
    assert_allclose(keras.ops.convert_to_numpy(found), expected, atol=1e-5)


def test_what_cannot_be_combined_says_so():
    encoder = AlbertEncoder(small(**WINDOW))
    with refused("packed rows exclude each other"):
        encoder(TOKENS | {"sequence_ids": TOKENS["input_mask"]})
    with refused("there are no attentions"):
        encoder(TOKENS, output_attentions=True)
