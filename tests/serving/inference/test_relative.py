"""XLNet's attention in the inference encoder: distances, segments and [CLS] last give the Keras encoder's numbers."""

import numpy as np
import pytest

from serving.inference import ExitRule, InferenceOptions, make_encoder
from tests.serving.inference.encoders import (
    compiled,
    difference,
    make_batch,
    make_relative,
    needs_avx512,
    paddings,
)
from tfrecords.base.errors import UserError

PLANS = {
    "one block": {},
    "groups, untied": {"depth_plan": "1+1x2+1", "untie_biases": True, "attention_type": "uni", "clamp_length": 2},
    "extended": {"hyper_connections": 2, "depth_lora_rank": 2, "step_signal": "learned", "factorization": "word"},
}
MORE = {
    "untied": {"untie_biases": True},
    "unshared, one-directional": {"sharing": "none", "attention_type": "uni"},
    "clamped": {"clamp_length": 3},
    "words factorised": {"factorization": "word"},
    "no projection": {"embedding_size": 24},
    "gated, pre-norm": {"feed_forward": "glu", "norm_position": "pre", "norm": "rms_norm"},
    "exact gelu": {"hidden_act": "gelu_erf"},
    "equilibrium": {"equilibrium_solver": "fixed_point"},
}
plans = pytest.mark.parametrize(
    "changes",
    [pytest.param(changes, id=name) for name, changes in PLANS.items()]
    + [pytest.param(changes, id=name, marks=pytest.mark.slow) for name, changes in MORE.items()],
)


@paddings
@plans
@pytest.mark.few(2)
def test_float32_equals_the_keras_encoder(changes, padding):
    encoder, how = make_relative(**{"num_hidden_layers": 4} | changes), InferenceOptions("float32", padding)
    for batch in (make_batch(), make_batch((7,), 9)):
        assert max(difference(encoder, how, batch, graph=False)) < 1e-5


def test_a_graph_gives_the_same():
    encoder = make_relative(untie_biases=True, num_hidden_layers=3)
    for batch in (make_batch(), make_batch((7,), 9)):
        assert max(difference(encoder, InferenceOptions(), batch)) < 1e-5


def test_padding_may_be_in_front():
    encoder, (ids, lengths, segments, mask) = make_relative(), make_batch()
    behind = compiled(make_encoder(encoder))(ids, lengths, segments)
    front = [np.array([np.roll(row, -size) for row, size in zip(rows, lengths)]) for rows in (ids, segments, mask)]
    expected = encoder(dict(zip(("input_ids", "segment_ids", "input_mask"), front)))
    for padding in ("skipped", "computed"):
        encode = compiled(make_encoder(encoder, InferenceOptions(padding=padding)))
        found = encode(front[0], None, front[1], front[2].astype("int32"))
        np.testing.assert_allclose(found["pooled_output"], behind["pooled_output"], atol=1e-5)
        at = front[2]
        np.testing.assert_allclose(found["sequence_output"][at], expected["sequence_output"][at], atol=1e-5)


def test_one_segment_needs_none():
    encoder, (ids, lengths, segments, _) = make_relative(), make_batch()
    twin = make_encoder(encoder)
    for rows in (slice(0, 4), slice(3, 4)):
        found, zeros = twin(ids[rows], lengths[rows]), twin(ids[rows], lengths[rows], 0 * segments[rows])
        np.testing.assert_allclose(found["pooled_output"], zeros["pooled_output"], atol=1e-6)
        assert (
            np.abs(found["pooled_output"] - twin(ids[rows], lengths[rows], segments[rows])["pooled_output"]).max()
            > 1e-3
        )


@pytest.mark.parametrize(("compute", "tolerance"), [pytest.param("bfloat16", 0.02, marks=needs_avx512), ("int8", 0.1)])
def test_lower_precision_is_near_the_keras_encoder(compute, tolerance):
    encoder, batch = make_relative(untie_biases=True), make_batch()
    found = difference(encoder, InferenceOptions(compute), batch, batch[:2], np.mean)
    assert 1e-5 < max(found) < tolerance


def test_what_scores_distances_is_one_matrix_of_the_longest_row():
    encoder = make_relative(max_position_embeddings=512)
    twin = make_encoder(encoder, max_seq_length=20)
    assert [tuple(half.relative.position_keys.shape) for half in twin.attentions] == [(3, 40, 8)]
    assert len(make_encoder(make_relative(sharing="none"), max_seq_length=20).attentions) == 4
    kernels = [tuple(variable.shape) for variable in twin.variables if "position_keys" not in variable.name]
    assert kernels.count((24, 24)) == 2, "output and pooler alone: W_r is in no export"


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_the_longest_row_may_have_any_length(compute):
    """Of which attention computes more: of 9 places 12."""
    encoder = make_relative(num_hidden_layers=2)
    twin = make_encoder(encoder, InferenceOptions(compute), max_seq_length=9)
    for lengths in ((9, 2, 9), (9,)):
        ids, sizes, segments, mask = make_batch(lengths, 9)
        expected = encoder({"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments})
        found = compiled(twin)(ids, sizes, segments)["pooled_output"]
        assert np.abs(found - expected["pooled_output"]).mean() < (1e-5 if compute == "float32" else 0.1)


def test_early_exit_is_refused():
    ids, lengths, _, _ = make_batch()
    with pytest.raises(UserError, match=r"relative positions have \[CLS\] last"):
        make_encoder(make_relative()).early_exit(
            ids, lengths, None, [], np.zeros(4, "float32"), ExitRule("states", "movement")
        )
