"""The inference encoder gives the numbers of the Keras encoder, whatever it is built of and computed in."""

import numpy as np
import pytest
import tensorflow as tf

from serving.check import measure
from serving.inference import InferenceOptions, attention, make_encoder
from serving.inference import encoder as inference_encoder
from serving.inference.int8 import exact_products
from tests.serving.inference.encoders import (
    ENCODERS,
    both,
    compiled,
    encoders,
    features,
    make_batch,
    make_keras,
    needs_avx512,
    needs_vnni,
    require_near,
)


@encoders
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


IN_GRAPHS = ("windows", "relative, untied, one-directional", "all")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_GRAPHS else pytest.mark.slow) for name in ENCODERS]
)
def test_one_graph_takes_all_batches(name, monkeypatch):
    """As an export's, which knows no sizes: batches, a row alone, no rows; and long rows, attended to by parts."""
    monkeypatch.setattr(attention, "PART", 5)
    encoder = make_keras(**ENCODERS[name])
    twin = make_encoder(encoder)
    # The graph of pooled answers is another, and as dear.
    answer = compiled(twin if name in IN_GRAPHS[:2] else both(twin), [None, None], [None], [None, None])
    for lengths, length in (((9, 1, 4, 12), 12), ((7,), 9), ((5, 5), 5)):
        batch = make_batch(lengths, length)
        require_near(answer(*batch[:3]), encoder(features(batch)), batch[3])
    nothing = answer(tf.zeros([0, 7], tf.int32), tf.zeros([0], tf.int32), tf.zeros([0, 7], tf.int32))
    assert nothing["sequence_output"].shape == (0, 7, 24) and nothing["pooled_output"].shape == (0, 24)
    assert answer.experimental_get_tracing_count() == 1


# What 8 bits make of activation functions and gates, and every extension in each precision.
FEWER_BITS = {
    "bfloat16": {
        "albert": "latency", "pre, rms": "throughput", "low rank, gated": "latency", "all": "throughput",
        "relative, untied, one-directional": "latency",
    },
    "int8": {
        "albert": "throughput", "unshared, exact gelu": "latency", "modern": "throughput", "pre, rms": "throughput",
        "gated, rotary": "latency", "windows": "latency", "low rank, gated": "latency", "halting streams": "throughput",
        "relative, untied, one-directional": "latency",
    },
    "int8_vnni": {"albert": "latency"},
}  # fmt: skip
MARKS = {"bfloat16": needs_avx512, "int8_vnni": needs_vnni}
fewer_bits = pytest.mark.parametrize(
    ("compute", "name", "hint"),
    [
        pytest.param(compute, name, hint, marks=MARKS.get(compute, ()))
        for compute, names in FEWER_BITS.items()
        for name, hint in names.items()
    ],
)


@fewer_bits
def test_fewer_bits_are_near_the_keras_encoder(compute, name, hint, products_anywhere):
    near_in_fewer_bits(compute, name, hint, both)


@pytest.mark.slow
@fewer_bits
def test_fewer_bits_in_a_graph_are_near_the_keras_encoder(compute, name, hint):
    near_in_fewer_bits(compute, name, hint, lambda twin: compiled(both(twin)))


def near_in_fewer_bits(compute, name, hint, answering):
    encoder, batch = make_keras(**ENCODERS[name]), make_batch()
    expected, mask = encoder(features(batch)), batch[3]
    padding = "skipped" if hint == "latency" else "computed"
    twin = make_encoder(encoder, InferenceOptions(compute, padding, performance_hint=hint), batch[:2])
    found = answering(twin)(*batch[:3])
    floats = {key: value for key, value in found.items() if value.dtype == tf.float32}
    require_near(floats, expected, mask, 0.02 if compute == "bfloat16" else 0.1, np.mean)
    with pytest.raises(AssertionError):
        require_near(floats, expected, mask, 1e-5)
    if compute == "bfloat16":
        return
    # No further than rounding to 8 bits explains.
    with exact_products(twin):
        exact = answering(twin)(*batch[:3])
    for key, values in floats.items():
        of_keras = np.asarray(expected[key.replace("pooled_alone", "pooled_output")])
        rounding, distance = measure(of_keras, exact[key].numpy()), measure(exact[key].numpy(), values.numpy())
        assert distance.angle <= rounding.angle + 1e-4 and distance.difference <= 2 * rounding.difference + 0.02
