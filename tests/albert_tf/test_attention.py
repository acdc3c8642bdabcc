"""Relative attention, two streams and memory without gold (test_xlnet_checkpoints.py), and attention nearby."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax

from albert_tf import AlbertEncoder, AlbertPretrainer, XlnetPretrainer
from albert_tf.extensions.window import Blocks, attend_nearby
from tests.albert_tf import depth_cases
from tests.albert_tf.depth_cases import MEMORY, STREAMS, TOKENS, WINDOW
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
TOLERANCE = dict(atol=1e-5, rtol=0)
ONE = np.array([[1, 2]])


def small(**changes):
    fields = dict(embedding_size=16, num_hidden_layers=3, position_type="relative", initializer_range=0.3)
    return depth_cases.small(**fields | changes)


UNMASKED = TOKENS | {name: value for name, value in depth_cases.FEATURES.items() if name.startswith("masked_lm")}
FEATURES = UNMASKED | {"perm_mask": STREAMS["perm_mask"]}


def pretrainer(**changes):
    """With weights that are all different from what they begin as, norms and biases too."""
    return depth_cases.filled(XlnetPretrainer(AlbertEncoder(small(**changes), pooler=False)))


def test_a_reversed_row_is_the_mirrored_row_read_forwards():
    """And a clamped distance is the same on both sides."""
    encoder = pretrainer(sharing="ffn", clamp_length=2).encoder
    mirrored = {name: value[:, ::-1] for name, value in TOKENS.items()}
    found, reversed_too, plain = (
        np.asarray(encoder(features)["sequence_output"])
        for features in (TOKENS | {"is_reversed": np.array([1, 0, 0])}, mirrored, TOKENS)
    )
    assert_allclose(found[0], reversed_too[0, ::-1], **TOLERANCE)
    assert_allclose(found[1], plain[1], **TOLERANCE)
    assert np.abs(found[0] - plain[0]).max() > 1e-3


def test_one_graph_takes_rows_of_every_length(in_graphs):
    """As fine-tuning's, whose batches differ in length."""
    model = pretrainer(num_hidden_layers=1)
    long = FEATURES | {"is_reversed": STREAMS["is_reversed"]}
    short = {name: value[:, 2:] for name, value in TOKENS.items()}
    short |= {"perm_mask": long["perm_mask"][:, 2:, 2:], "masked_lm_positions": long["masked_lm_positions"] // 2}
    short = long | short

    def run(features):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(features, None, model(features))
        return loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))

    spec = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in long.items()}
    graph = tf.function(run, input_signature=[spec], autograph=False)
    for features in (long, short):
        for ours, expected in zip(graph(features), run(features), strict=True):
            assert_allclose(ours, expected, atol=1e-5)


def test_positions_without_a_mask_hide_all_targets():
    """AlbertPretrainer on such an encoder, the other objective of a comparison, sees them."""
    hiding, seeing = pretrainer(), AlbertPretrainer(small(), pair_task=None)
    changed, other = (UNMASKED["input_ids"].copy() for _ in range(2))
    changed[0, [1, 4]], other[0, 2] = 33, 34
    for model, ids, moves in ((hiding, changed, False), (hiding, other, True), (seeing, changed, True)):
        before, after = (model(UNMASKED | new)["masked_lm_logits"][0] for new in ({}, {"input_ids": ids}))
        assert (np.abs(after - before).max() > 1e-3) == moves == bool(np.any(after != before))


def test_target_mapping_says_what_positions_say():
    encoder, features = pretrainer().encoder, dict(MEMORY)
    by_place = encoder(features)["query_output"]
    mapping = np.eye(depth_cases.LENGTH, dtype="float32")[features.pop("query_positions")]
    assert_array_equal(encoder(features | {"target_mapping": mapping})["query_output"], by_place)


def test_no_gradient_reaches_memory():
    model, memory = pretrainer(memory_length=4), tf.convert_to_tensor(MEMORY["memory"])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(memory)
        outputs = model(FEATURES | {"memory": memory}, training=True)
        loss, kept = model.compute_loss(FEATURES, None, outputs), tf.reduce_sum(outputs["memory"])
    assert tape.gradient(loss, memory) is None
    assert tape.gradient(kept, model.encoder.embeddings.word_embeddings.value) is None


@pytest.mark.parametrize(
    "changes, features, message",
    [
        ({}, {"sequence_ids": ONE}, "leave out sequence_ids"),
        ({}, {"query_positions": ONE, "target_mapping": np.ones((1, 2, 2))}, "say the same"),
        ({"position_type": "absolute"}, {"perm_mask": np.zeros((1, 2, 2))}, "perm_mask is for an encoder with"),
    ],
)
def test_features_that_do_not_fit_are_named(changes, features, message):
    encoder = AlbertEncoder(small(**changes), pooler=False)
    with refused(message):
        encoder({"input_ids": ONE} | features)
    if changes:
        with refused("needs position_type 'relative', not 'absolute'"):
            XlnetPretrainer(encoder)


def score(query, key):
    return keras.ops.matmul(query, keras.ops.swapaxes(key, -1, -2))


def weigh(scores, part):
    return keras.ops.softmax(scores)


@settings(max_examples=20)
@given(length=st.integers(1, 23), window=st.integers(1, 9), is_masked=st.booleans())
def test_nearby_is_the_square_of_all_pairs_with_a_mask(length, window, is_masked):
    random, places = np.random.default_rng(length), np.arange(length)
    query, key, value = random.normal(size=(3, 2, 2, length, 4)).astype("float32")
    bias = np.where(places < random.integers(1, length + 1, (2, 1, 1, 1)), 0, -10000.0).astype("float32")
    near = (np.abs(places[:, None] - places) <= window) | (places == 0) | (places == 0)[:, None]
    scores = np.where(near, query @ key.transpose(0, 1, 3, 2) + bias * is_masked, -1e30)
    found = attend_nearby(query, key, value, bias if is_masked else None, score, weigh, Blocks(query, window), -10000.0)
    assert_allclose(found, softmax(scores, axis=-1) @ value, atol=1e-5)


def test_what_cannot_be_combined_with_a_window_says_so():
    encoder = AlbertEncoder(depth_cases.small(**WINDOW))
    with refused("packed rows exclude each other"):
        encoder(TOKENS | {"sequence_ids": TOKENS["input_mask"]})
    with refused("there are no attentions"):
        encoder(TOKENS, output_attentions=True)
