"""The inference encoder gives the numbers of the Keras encoder, whatever it is built of and computed in."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from serving.inference import InferenceOptions, make_encoder, rows
from serving.inference import encoder as inference_encoder
from tests.serving.inference.encoders import (
    ENCODERS,
    both,
    compiled,
    features,
    make_batch,
    make_keras,
    needs_avx512,
    require_near,
)
from tests.slow_groups import some_slow

FLOAT32 = {
    *("albert", "modern", "pre, gated, no bias", "windows alone, rotary", "low rank, gated", "halting plan"),
    *("distance buckets", "plan, low rank", "all", "relative, one-directional", "relative, extended"),
}


@pytest.mark.parametrize("name", some_slow(ENCODERS, FLOAT32))
def test_float32_gives_the_keras_encoders_numbers(name, monkeypatch):
    """In batches and of a row alone, with the products of either kind of CPU."""
    encoder, batch = make_keras(**ENCODERS[name]), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    for is_old in (False, True):
        monkeypatch.setattr(inference_encoder, "has_only_avx2", lambda is_old=is_old: is_old)
        twin = make_encoder(encoder)
        found = both(twin)(*batch[:3])
        require_near(found, expected, mask)
        assert not found["sequence_output"].numpy()[~mask].any()
        alone = {name: expected[name][:1] for name in found if name in expected}
        require_near(both(twin)(*(part[:1] for part in batch[:3])), alone, mask[:1])


@pytest.mark.parametrize("name", some_slow(ENCODERS, ("windows", "all", "albert")))
def test_one_graph_takes_all_batches(name, monkeypatch):
    """As an export's, which knows no sizes: batches, a row alone (whose part needs no tables), no
    rows; and long rows, attended to by parts."""
    made = []
    monkeypatch.setattr(rows.OneRow, "__init__", lambda *rest, init=rows.OneRow.__init__: made.append(1) or init(*rest))
    monkeypatch.setattr(rows, "PART", 5)
    encoder = make_keras(**ENCODERS[name])
    answer = compiled(make_encoder(encoder), [None, None], [None], [None, None])
    for lengths, length in (((9, 1, 4, 12), 12), ((7,), 9), ((5, 5), 5)):
        batch = make_batch(lengths, length)
        require_near(answer(*batch[:3]), encoder(features(batch)), batch[3])
    nothing = answer(tf.zeros([0, 7], tf.int32), tf.zeros([0], tf.int32), tf.zeros([0, 7], tf.int32))
    assert nothing["sequence_output"].shape == (0, 7, 24) and nothing["pooled_output"].shape == (0, 24)
    assert answer.experimental_get_tracing_count() == len(made) == 1


# Every activation function and every extension that products are part of; the others, and what the other type computes
# too, are slow.
QUICK = {
    "bfloat16": {"albert", "pre, rms", "low rank, gated", "all", "relative, one-directional"},
    "int8": {"albert", "unshared, exact gelu", "all", "relative, one-directional"},
}
FEWER_BITS = [
    pytest.param(
        *row, marks=[needs_avx512] * (row[0] == "bfloat16") + [pytest.mark.slow] * (row[1] not in QUICK[row[0]])
    )
    for row in itertools.product(QUICK, ENCODERS)
]


@pytest.mark.parametrize("compute, name", FEWER_BITS)
def test_fewer_bits_are_near_the_keras_encoder(compute, name, products_anywhere):
    encoder, batch = make_keras(**ENCODERS[name]), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    twin = make_encoder(encoder, InferenceOptions(compute), batch[:2])
    found = {key: value for key, value in both(twin)(*batch[:3]).items() if key != "steps"}
    require_near(found, expected, mask, 0.02 if compute == "bfloat16" else 0.15, np.mean)
    with pytest.raises(AssertionError):
        require_near(found, expected, mask)
