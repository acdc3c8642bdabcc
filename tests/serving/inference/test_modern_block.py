"""Pre-norm, GLU, rotary positions, RMS norm and no biases in the inference encoder, LiteRT and early exit."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertClassifier
from serving.check import TOLERANCES, compare, expected_answers
from serving.inference import ExitRule, InferenceOptions, make_encoder
from serving.litert_file import convert, run_file
from tests.serving.inference.encoders import (
    CONFIG,
    compiled,
    difference,
    make_batch,
    make_keras,
    needs_avx512,
    paddings,
)

OPTIONS = {
    "norm_position": ("post", "pre"), "norm": ("layer_norm", "rms_norm"), "feed_forward": ("mlp", "glu"),
    "position_type": ("absolute", "rotary"), "use_bias": (True, False),
}  # fmt: skip
ALL = [dict(zip(OPTIONS, values)) for values in itertools.product(*OPTIONS.values())]
MODERN = ALL[-1]
ONE_EACH = [{name: values[1]} for name, values in OPTIONS.items()]


@paddings
@pytest.mark.parametrize("changes", ALL, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.few(6)
def test_float32_equals_the_keras_encoder(changes, padding):
    encoder = make_keras(initializer_range=0.15, **changes)
    assert max(difference(encoder, InferenceOptions("float32", padding), make_batch(), graph=False)) < 1e-5


@pytest.mark.parametrize("changes", [{"num_hidden_groups": 2}, {"sharing": "none"}, {"depth_plan": "1+1x2+1"}])
@pytest.mark.few(1)
def test_every_plan_and_a_graph_of_it(changes):
    encoder = make_keras(initializer_range=0.15, **MODERN | changes)
    assert max(difference(encoder, InferenceOptions("float32", "skipped"), make_batch())) < 1e-5


@paddings
@pytest.mark.parametrize("changes", [*ONE_EACH, MODERN], ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize(("compute", "tolerance"), [pytest.param("bfloat16", 0.02, marks=needs_avx512), ("int8", 0.1)])
@pytest.mark.few(3)
def test_lower_precision_is_near_the_keras_encoder(compute, tolerance, changes, padding):
    encoder, batch = make_keras(**changes), make_batch()
    found = difference(encoder, InferenceOptions(compute, padding), batch, batch[:2], np.mean)
    assert 1e-5 < max(found) < tolerance


def test_int8_takes_any_activation_before_a_gate():
    encoder, batch = make_keras(hidden_act="silu", **MODERN), make_batch()
    assert max(difference(encoder, InferenceOptions("int8"), batch, batch[:2], np.mean)) < 0.1


@pytest.mark.parametrize("padding", ["computed", "skipped"])
def test_a_hole_in_the_mask_keeps_the_distance_across_it(padding):
    encoder, (ids, lengths, segments, mask) = make_keras(**MODERN), make_batch()
    mask[3, 5:8] = False
    expected = encoder({"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments})
    encode = compiled(make_encoder(encoder, InferenceOptions("float32", padding)))
    found = encode(ids, lengths, segments, mask.astype("int32"))
    assert np.abs(found["sequence_output"].numpy() - expected["sequence_output"].numpy())[mask].max() < 1e-5


def test_rows_are_longer_than_any_table():
    encoder, batch = make_keras(max_position_embeddings=4, **MODERN), make_batch((70, 33), 70)
    assert max(difference(encoder, InferenceOptions("float32"), batch)) < 1e-5


@pytest.mark.parametrize("compute", [pytest.param("bfloat16", marks=needs_avx512), "int8"])
def test_an_answer_has_the_same_bits_in_every_batch(compute):
    rng = np.random.default_rng(0)
    model = make_keras(hidden_size=48, num_attention_heads=4, intermediate_size=64, **MODERN)
    encode = tf.function(
        make_encoder(model, InferenceOptions(compute, "skipped")).__call__,
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)],
    )
    for length in (1, 3, 9, 31, 64, 100):
        row = rng.integers(5, CONFIG.vocab_size, length)
        alone = encode(row[np.newaxis], [length])
        for others in (1, 2, 5, 40):
            lengths = rng.integers(1, 130, others + 1).astype("int32")
            place = rng.integers(others + 1)
            lengths[place] = length
            ids = rng.integers(5, CONFIG.vocab_size, (others + 1, lengths.max()))
            ids[place, :length] = row
            found = encode(ids, lengths)["sequence_output"][place : place + 1, :length]
            np.testing.assert_array_equal(found, alone["sequence_output"])


@pytest.mark.parametrize("padding", ["computed", "skipped"])
@pytest.mark.few(1)
def test_early_exit_reads_what_each_step_would_give(padding):
    model = AlbertClassifier(make_keras(num_hidden_layers=3, **MODERN), num_classes=2, early_exit=True)
    ids, lengths, _, mask = make_batch((9, 1, 4, 12, 5))
    mask[3, 5:8] = False
    states = model.encoder({"input_ids": ids, "input_mask": mask.astype("int32")})["hidden_states"][1:]
    expected = np.stack([head(model.encoder.pooler(state[:, 0])) for head, state in zip(model.exit_heads, states)])
    sure = np.sort(keras.ops.softmax(expected).numpy().max(-1), axis=None)
    twin = make_encoder(model, InferenceOptions("float32", padding))
    for threshold in (0.0, float(sure[7]) - 1e-5, 1.1):
        found = tf.function(
            lambda bound: twin.early_exit(
                ids, lengths, None, model.exit_heads, tf.fill([5], bound), ExitRule(), mask.astype("int32")
            ),
            autograph=False,
        )(tf.constant(threshold))
        steps = found["steps"].numpy()
        np.testing.assert_allclose(found["logits"], expected[steps - 1, np.arange(5)], atol=1e-5)
        first = (keras.ops.softmax(expected).numpy().max(-1) >= threshold).argmax(0) + 1
        np.testing.assert_array_equal(steps, np.where(threshold > 1, 3, first))


@pytest.mark.parametrize("changes", [{"position_type": "rotary"}, MODERN], ids=["rotary", "modern"])
def test_litert_gives_the_same(changes, tmp_path):
    model = AlbertClassifier(make_keras(num_hidden_layers=2, **changes), num_classes=2)
    inputs = {"input_ids": make_batch((9,), 9)[0], "lengths": np.array([7], "int32")}
    (tmp_path / "model.tflite").write_bytes(convert(model))
    compare(expected_answers(model, inputs), run_file(tmp_path / "model.tflite", inputs), TOLERANCES["float32"])
