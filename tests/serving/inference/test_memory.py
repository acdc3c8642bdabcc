"""Rows that follow others: the memory of the export is the Keras encoder's, and stands for one long row."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from serving.inference import InferenceOptions, make_encoder
from tests.serving.inference.encoders import CONFIG, PLAN, RELATIVE, compiled, make_batch, make_keras

PLANS = {
    "part of a row": {"memory_length": 7, "reuse_length": 5, "untie_biases": True} | PLAN,
    "unshared, one-directional": {"memory_length": 20, "sharing": "none", "attention_type": "uni", "clamp_length": 6},
}


def stateful(encoder, compute="float32", calibration=None, graph=True):
    twin = make_encoder(encoder, InferenceOptions(compute), calibration)
    shape = [None, None, None, CONFIG.hidden_size]
    matrix, vector = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)
    signature = [matrix, matrix, matrix, tf.TensorSpec(shape, tf.float32), vector]

    def encode(ids, mask, segments, memory, lengths):
        return twin(ids, None, segments, mask, memory=memory, memory_lengths=lengths)

    return tf.function(encode, signature, autograph=False) if graph else encode


def nothing(batch, places=0, steps=2):
    return np.zeros((batch, steps, places, CONFIG.hidden_size), "float32"), np.zeros(batch, "int32")


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
def test_rows_in_order_are_those_of_keras(changes):
    encoder, memory = make_keras(**RELATIVE | changes), None
    kept = nothing(4, steps=encoder.config.num_steps)
    encode, rng = stateful(encoder, graph=False), np.random.default_rng(0)
    for _ in range(4):
        ids = rng.integers(0, CONFIG.vocab_size, (4, 9), "int32")
        segments = rng.integers(0, 3, ids.shape, "int32")
        features = {"input_ids": ids, "segment_ids": segments} | ({} if memory is None else {"memory": memory})
        expected = encoder(features)
        found, memory = encode(ids, np.ones_like(ids), segments, *kept), expected["memory"]
        for output in ("sequence_output", "pooled_output"):
            assert_allclose(found[output], expected[output], atol=1e-5)
        kept = found["memory"], found["memory_lengths"]
        there = memory.shape[2]
        assert kept[1].numpy().tolist() == [there] * 4 and kept[0].shape[2] == changes["memory_length"]
        assert not kept[0][:, :, :-there].numpy().any()
        assert_allclose(kept[0][:, :, -there:], np.swapaxes(memory, 0, 1), atol=1e-5)
    assert there == changes["memory_length"]


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_windows_of_any_lengths_are_one_long_row(compute):
    """One-directional; windows are padded, each document of the batch by itself, and some are new."""
    changes = {"attention_type": "uni", "memory_length": 40, "max_position_embeddings": 48}
    encoder, rng = make_keras(**RELATIVE | changes), np.random.default_rng(1)
    ids, segments = rng.integers(0, CONFIG.vocab_size, (2, 16), "int32"), np.zeros((2, 16), "int32")
    calibration = ids, np.array([16, 16], "int32")
    encode = stateful(encoder, compute, calibration)
    long = compiled(make_encoder(encoder, InferenceOptions(compute), calibration))
    expected = long(ids, np.array([16, 12], "int32"), segments)["sequence_output"]
    kept, done, parts = nothing(2, 40), np.zeros(2, int), [[], []]
    for sizes in ((5, 3), (1, 8), (10, 1)):
        window = np.zeros((2, 11), "int32")
        for row, (start, size) in enumerate(zip(done, sizes)):
            window[row, :size] = ids[row, start : start + size]
        mask = np.arange(11) < np.array(sizes)[:, None]
        found = encode(window, mask.astype("int32"), 0 * window, *kept)
        for row, size in enumerate(sizes):
            parts[row].append(found["sequence_output"][row, :size])
        kept, done = (found["memory"], found["memory_lengths"]), done + sizes
    assert kept[1].numpy().tolist() == [16, 12]
    for row, length in enumerate((16, 12)):
        far = np.abs(np.concatenate(parts[row]) - expected[row, :length])
        assert far.mean() < 0.02 and (compute == "int8" or far.max() < 1e-5)


def test_more_than_a_model_remembers_is_refused():
    ids, _, segments, mask = make_batch()
    encode = stateful(make_keras(memory_length=3, **RELATIVE), graph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="memory has more than the 3 places"):
        encode(ids, mask.astype("int32"), segments, *nothing(4, 4))
