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
from albert_tf.layers.depth import plan, segments
from tests.albert_tf.depth_cases import WINDOW, alike, small, trained
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
CONFIG = small(max_position_embeddings=40, num_hidden_layers=5, initializer_range=0.2, **WINDOW)


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


def is_local(config, step):
    return config.extension("window").is_local(step)


@pytest.fixture(scope="module")
def features():
    ids = np.random.default_rng(0).integers(5, 40, (3, 19)).astype("int32")
    return {"input_ids": ids, "input_mask": (np.arange(19) < np.array([[19], [11], [1]])).astype("int32")}


def test_the_plan_says_which_steps_are_local_and_loops_repeat_the_pattern():
    grouped = CONFIG.replace(num_hidden_layers=7, depth_plan="1+2x3", global_attention_every=3)
    for config, expected in (
        (CONFIG, [False, True, False, True, False]),
        (CONFIG.replace(global_attention_every=0), [True] * 5),
        (grouped, [number % 3 > 0 for number in range(7)]),
    ):
        assert [is_local(config, step) for step in plan(config)] == expected
        assert [
            is_local(config, step) for run in segments(config) for _ in range(run.repeats) for step in run.steps
        ] == expected


@pytest.mark.parametrize(
    "every, changes", [(0, {}), (2, {"position_type": "rotary", "norm_position": "pre"}), (2, {"sharing": "none"})]
)
def test_a_window_over_the_whole_row_is_full_attention(features, every, changes):
    """And trained like it: the same weights, a window of the row's length, and none."""
    wide = CONFIG.replace(attention_window=18, global_attention_every=every, **changes)
    full = wide.replace(attention_window=0, global_attention_every=0)
    found, expected = (trained(alike(config), features) for config in (wide, full))
    real = features["input_mask"].astype(bool)
    for name, value in expected.items():
        rows = real if name in ("sequence_output", "embedding_output") else ...
        one, other = np.array(found[name])[rows], np.array(value)[rows]
        assert_allclose(one, other, atol=1e-5 * max(1, np.abs(other).max()), err_msg=name)


def test_what_cannot_be_combined_says_so(features):
    with refused("packed rows exclude each other"):
        AlbertEncoder(CONFIG)(features | {"sequence_ids": features["input_mask"]})
    with refused("there are no attentions"):
        AlbertEncoder(CONFIG)(features, output_attentions=True)
