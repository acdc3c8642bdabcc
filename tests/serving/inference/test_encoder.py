"""What the inference encoder makes of batches of any kind: masks, lengths, tokens that halt, sizes of its graph."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from serving.inference import InferenceOptions, make_encoder
from serving.inference.rows import SIZES, FlatBatch, make_tables, round_up
from tests.serving.inference.encoders import (
    CONFIG,
    GATED,
    MODERN,
    RELATIVE,
    both,
    features,
    make_batch,
    make_keras,
    require_near,
)


@functools.cache
def one_layer():
    encoder = make_keras(num_hidden_layers=1, max_position_embeddings=130)
    return encoder, make_encoder(encoder)


# A Keras encoder without a graph takes its time.
@settings(max_examples=10)
@given(st.lists(st.integers(1, 130), min_size=1, max_size=9), st.integers(0, 99))
@example([128, 32, 33, 4, 5], 0)
@example([7, 7, 7], 0)
def test_rows_of_all_lengths_have_the_keras_encoders_numbers(lengths, seed):
    encoder, twin = one_layer()
    batch = make_batch(lengths, max(lengths), seed)
    require_near(twin(*batch[:3]), encoder(features(batch)), batch[3])


@pytest.mark.parametrize(
    "changes, longest, lengths",
    [(MODERN | GATED | {"max_position_embeddings": 4}, None, (70,)), (RELATIVE, 9, (9, 2, 9)), (RELATIVE, 9, (9,))],
)
def test_the_longest_row_is_longer_than_a_table_or_of_any_length(changes, longest, lengths):
    """Of relative positions attention computes more than those of the longest row: of 9 places 12."""
    encoder, batch = make_keras(**changes), make_batch(lengths, max(lengths))
    require_near(make_encoder(encoder, max_seq_length=longest)(*batch[:3]), encoder(features(batch)), batch[3])


@pytest.mark.parametrize("changes", [{}, MODERN | GATED, RELATIVE], ids=["albert", "modern", "xlnet"])
def test_a_mask_goes_before_lengths_and_says_where_tokens_are(changes):
    """With holes, across which distances stay; of XLNet with padding in front, where it says nothing of positions."""
    encoder, (ids, lengths, segments, mask) = make_keras(**changes), make_batch()
    if changes is RELATIVE:
        ids, segments, mask = (
            np.array([np.roll(row, -size) for row, size in zip(rows, lengths)]) for rows in (ids, segments, mask)
        )
    else:
        mask[3, 5:8] = False
    batch = ids, lengths, segments, mask
    found = make_encoder(encoder)(*batch[:3], mask.astype("int32"))
    require_near(found, encoder(features(batch)), mask)


def test_a_row_without_tokens_counts_its_first():
    for changes in ({}, RELATIVE):
        twin = make_encoder(make_keras(**changes))
        none, one = (both(twin)(*make_batch((4, 1), 4)[:1], np.array([4, count], "int32")) for count in (0, 1))
        for name, values in none.items():
            assert_allclose(values, one[name], atol=1e-6, err_msg=name)


def test_without_segments_all_are_the_first():
    for changes in ({}, RELATIVE):
        twin, (ids, lengths, segments, _) = make_encoder(make_keras(**changes)), make_batch()
        for rows in (slice(0, 4), slice(3, 4)):
            found, zeros, given = (
                twin(ids[rows], lengths[rows], *more)["pooled_output"].numpy()
                for more in ([], [0 * segments[rows]], [segments[rows]])
            )
            assert_allclose(found, zeros, atol=1e-6)
            assert np.abs(found - given).max() > 1e-3


def test_pooled_answers_compute_the_last_step_for_one_token_a_row():
    twin, counts = make_encoder(make_keras(sharing="none")), []
    dense = twin.kernels.dense
    twin.kernels.dense = lambda *rest: counts.append(len(rest[-1])) or dense(*rest)
    both(twin)(*make_batch()[:2])
    # 26 tokens, rounded up; and then four rows.
    assert counts == [28, 28, 28, 4]


def test_steps_end_once_all_tokens_have_halted():
    encoder = make_keras(halting="act", gate_init=1.0, num_hidden_layers=8)
    encoder.halting.gate.assign(1.0)
    encoder.halting.bias.assign(30.0)
    twin, runs = make_encoder(encoder), []
    dense = twin.kernels.dense
    twin.kernels.dense = lambda *arguments: (runs.append(1), dense(*arguments))[1]
    assert twin(*make_batch()[:2])["steps"].numpy().max() == 1 and len(runs) == 1


def test_ranges_of_8_bits_are_of_what_every_step_reads():
    # 5 tokens, with which three more are computed: of SIZES. These are larger here, and in no range.
    encoder, batch = make_keras(num_hidden_layers=4, attention_window=2), make_batch((1, 4), 4, seed=1)
    twin = make_encoder(encoder, InferenceOptions("int8"), batch[:2])
    states = encoder(features(batch) | {"segment_ids": 0 * batch[2]})["hidden_states"][:-1]
    largest = [np.abs(np.asarray(state)[batch[3]]).max() for state in states]
    assert_allclose(twin.attentions[0].ranges[:, 0], largest, rtol=1e-4)


def test_kernels_are_of_few_sizes():
    """oneDNN keeps one of each size that comes: memory must not grow with every new length."""
    counts = np.arange(1, 70000, dtype=np.int32)
    sizes = round_up(tf.constant(counts)).numpy()
    assert (sizes >= counts).all() and (sizes[31:] <= 1.25 * counts[31:]).all() and (sizes - counts)[:31].max() == 3
    assert len(np.unique(sizes[:512])) == 36
    assert round_up(tf.constant([SIZES[-1] + 1], tf.int32)).numpy() == SIZES[-1] + 1
    batch = FlatBatch(tf.sequence_mask([9, 1, 130, 65]), CONFIG)
    assert batch.computed.shape == [208] and batch.cells.shape == [205]
    tables = make_tables(batch.lengths, round_up(batch.lengths), CONFIG)
    assert tables.block_length.numpy().tolist() == [4, 12, 72, 144]


def test_relative_positions_are_one_matrix_of_the_longest_row():
    encoder = make_keras(max_position_embeddings=512, **RELATIVE)
    twin = make_encoder(encoder, max_seq_length=20)
    assert [tuple(one.shape) for one in twin.variables if "position_keys" in one.name] == [(3, 40, 8)]
    kernels = [tuple(variable.shape) for variable in twin.variables if "position_keys" not in variable.name]
    assert kernels.count((24, 24)) == 2, "output and pooler alone: W_r is in no export"
