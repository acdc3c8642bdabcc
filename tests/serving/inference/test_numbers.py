"""The inference encoder gives the numbers of the Keras encoder, whatever it is built of and computed in."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.extensions import window
from serving.check import measure
from serving.inference import InferenceOptions, make_encoder, rows
from serving.inference import encoder as inference_encoder
from serving.inference.int8 import exact_products
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
    needs_vnni,
    require_near,
)


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
bfloat16 | albert | latency
bfloat16 | pre, rms | throughput
bfloat16 | low rank, gated | latency
bfloat16 | halting plan | latency
bfloat16 | all | throughput
bfloat16 | relative, one-directional | latency
int8 | albert | throughput
int8 | unshared, exact gelu | latency
int8 | pre, rms | throughput
int8 | all | throughput
int8 | low rank, gated | latency
int8 | relative, one-directional | throughput
int8_vnni | albert | latency
"""
MARKS = {"bfloat16": [needs_avx512], "int8_vnni": [needs_vnni]}
SLOW = {("bfloat16", "halting plan"), ("int8", "pre, rms"), ("int8", "low rank, gated")}
ROWS = [line.split(" | ") for line in FEWER_BITS.strip().splitlines()]
fewer_bits = pytest.mark.parametrize(
    ("compute", "name", "hint"),
    [pytest.param(*row, marks=MARKS.get(row[0], []) + [pytest.mark.slow] * ((row[0], row[1]) in SLOW)) for row in ROWS],
)


@fewer_bits
def test_fewer_bits_are_near_the_keras_encoder(compute, name, hint, products_anywhere):
    near_in_fewer_bits(compute, hint, ENCODERS[name], both if hint == "latency" else lambda twin: twin)


@pytest.mark.slow
@encoders
@pytest.mark.parametrize(
    ("compute", "hint"), [pytest.param("bfloat16", "latency", marks=needs_avx512), ("int8", "throughput")]
)
def test_fewer_bits_in_a_graph_are_near_the_keras_encoder(compute, hint, changes):
    near_in_fewer_bits(compute, hint, changes, lambda twin: compiled(both(twin)))


def near_in_fewer_bits(compute, hint, changes, answering):
    encoder, batch = make_keras(**changes), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    padding = "skipped" if hint == "latency" else "computed"
    twin = make_encoder(encoder, InferenceOptions(compute, padding, performance_hint=hint), batch[:2])
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
