"""The inference encoder gives the numbers of the Keras encoder, whatever it is built of and computed in."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.extensions import window
from serving.check import measure
from serving.inference import InferenceOptions, make_encoder, rows
from serving.inference import encoder as inference_encoder
from tests.serving.inference.encoders import (
    ENCODERS,
    both,
    compiled,
    encoders,
    encoders_mostly_slow,
    features,
    make_batch,
    make_keras,
    needs_avx512,
    require_near,
)
from tests.serving.inference.exact_products import exact_products


@encoders_mostly_slow(
    *("albert", "modern", "pre, gated, no bias", "windows alone, rotary", "low rank, gated", "halting plan"),
    *("distance buckets", "plan, low rank", "all", "relative, one-directional", "relative, extended"),
)
def test_float32_gives_the_keras_encoders_numbers(changes, monkeypatch):
    """In batches and of a row alone, padding skipped and computed, with the products of either kind of CPU."""
    encoder, batch = make_keras(**changes), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    for padding in ("skipped", "computed"):
        monkeypatch.setattr(inference_encoder, "has_only_avx2", lambda padding=padding: padding == "computed")
        twin = make_encoder(encoder, InferenceOptions("float32", padding))
        found = both(twin)(*batch[:3])
        require_near(found, expected, mask)
        assert padding == "computed" or not found["sequence_output"].numpy()[~mask].any()
        alone = {name: expected[name][:1] for name in found if name in expected}
        require_near(both(twin)(*(part[:1] for part in batch[:3])), alone, mask[:1])


@encoders_mostly_slow("windows", "all")
def test_one_graph_takes_all_batches(changes, monkeypatch):
    """As an export's, which knows no sizes: batches, a row alone (whose part needs no tables), no
    rows; and long rows, attended to by parts."""
    made = []
    monkeypatch.setattr(rows.OneRow, "__init__", lambda *rest, init=rows.OneRow.__init__: made.append(1) or init(*rest))
    monkeypatch.setattr(window, "PART", 5)
    encoder = make_keras(**changes)
    answer = compiled(make_encoder(encoder), [None, None], [None], [None, None])
    for lengths, length in (((9, 1, 4, 12), 12), ((7,), 9), ((5, 5), 5)):
        batch = make_batch(lengths, length)
        require_near(answer(*batch[:3]), encoder(features(batch)), batch[3])
    nothing = answer(tf.zeros([0, 7], tf.int32), tf.zeros([0], tf.int32), tf.zeros([0, 7], tf.int32))
    assert nothing["sequence_output"].shape == (0, 7, 24) and nothing["pooled_output"].shape == (0, 24)
    assert answer.experimental_get_tracing_count() == len(made) == 1


# Every activation function and every extension that products are part of. Slow is what the other type computes, too.
FEWER_BITS = """
bfloat16 | albert | skipped
bfloat16 | pre, rms | computed
bfloat16 | low rank, gated | skipped
bfloat16 | halting plan | skipped
bfloat16 | all | computed
bfloat16 | relative, one-directional | skipped
int8 | albert | skipped
int8 | unshared, exact gelu | skipped
int8 | pre, rms | computed
int8 | all | computed
int8 | low rank, gated | skipped
int8 | relative, one-directional | computed
"""
SLOW = {("bfloat16", "halting plan"), ("int8", "pre, rms"), ("int8", "low rank, gated")}
ROWS = [line.split(" | ") for line in FEWER_BITS.strip().splitlines()]


def marks_of(compute, name, padding):
    return [needs_avx512] * (compute == "bfloat16") + [pytest.mark.slow] * ((compute, name) in SLOW)


@pytest.mark.parametrize(("compute", "name", "padding"), [pytest.param(*row, marks=marks_of(*row)) for row in ROWS])
def test_fewer_bits_are_near_the_keras_encoder(compute, name, padding, products_anywhere):
    near_in_fewer_bits(compute, padding, ENCODERS[name], both if padding == "skipped" else lambda twin: twin)


@pytest.mark.slow
@encoders
@pytest.mark.parametrize(
    ("compute", "padding"), [pytest.param("bfloat16", "skipped", marks=needs_avx512), ("int8", "computed")]
)
def test_fewer_bits_in_a_graph_are_near_the_keras_encoder(compute, padding, changes):
    near_in_fewer_bits(compute, padding, changes, lambda twin: compiled(both(twin)))


def near_in_fewer_bits(compute, padding, changes, answering):
    encoder, batch = make_keras(**changes), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    twin = make_encoder(encoder, InferenceOptions(compute, padding), batch[:2])
    found = {key: value for key, value in answering(twin)(*batch[:3]).items() if key != "steps"}
    require_near(found, expected, mask, 0.02 if compute == "bfloat16" else 0.15, np.mean)
    with pytest.raises(AssertionError):
        require_near(found, expected, mask)
    if compute == "bfloat16":
        return
    # No further than rounding to 8 bits explains.
    with exact_products(twin):
        exact = answering(twin)(*batch[:3])
    of_keras, exact, found = (np.asarray(one["sequence_output"])[mask] for one in (expected, exact, found))
    rounding, distance = measure(of_keras, exact), measure(exact, found)
    assert distance.angle <= rounding.angle + 1e-4 and distance.difference <= 2 * rounding.difference + 0.02
