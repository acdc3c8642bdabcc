"""Exports run any extension: by its own mathematics, or by other mathematics that has the same numbers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from numpy.testing import assert_allclose

from albert_tf.checkpoints.sharing import unshare_blocks
from albert_tf.config import extension, registry
from serving.inference import InferenceOptions, make_encoder
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


@dataclasses.dataclass(frozen=True)
class Nearness(extension.Extension):
    """Lowers the scores of tokens that are far apart. No file of `serving` knows of it."""

    name = "nearness"
    ponder_cost: float = 0.01

    def rows(self, rows, features, weights):
        rows.add_feature("positions", rows.token_positions())
        return rows

    def attention(self, attention, weights):
        def score(attention, query, key, pairs, step):
            of_queries, of_keys = (ops.cast(one, query.dtype) for one in pairs.features["positions"])
            distances = ops.abs(of_queries[:, None, :, None] - of_keys[:, None, None, :])
            scores = attention.multiply(query, key, transpose_b=True)
            return (scores if attention.score_scale == 1 else scores * attention.score_scale) - distances

        return dataclasses.replace(attention, score=score)


def test_an_extension_without_a_file_here_is_exported(monkeypatch):
    """Of batches and of one row, all tokens and the first alone, in graphs that know no sizes."""
    monkeypatch.setitem(registry.REGISTRY, "nearness", registry.Entry(("ponder_cost",), module=__name__))
    encoder, batch = make_keras(ponder_cost=0.5), make_batch()
    assert [one.name for one in encoder.config.extensions] == ["nearness"]
    answer = compiled(both(make_encoder(encoder)), [None, None], [None])
    for rows in (slice(0, 4), slice(3, 4)):
        part = [one[rows] for one in batch]
        part[2] = 0 * part[2]
        expected = encoder(features(part))
        require_near(answer(*part[:2]), expected, part[3])


@pytest.mark.parametrize(
    "name, compute",
    [
        ("plan, low rank", "float32"),
        ("low rank, gated", "int8"),
        pytest.param("plan, low rank", "bfloat16", marks=needs_avx512),
    ],
)
def test_merged_low_rank_needs_no_products_and_has_the_numbers_of_the_shared_model(name, compute, products_anywhere):
    encoder, batch = make_keras(**ENCODERS[name] | {"hidden_act": "gelu"}), make_batch()
    expected, cosines = encoder(features(batch))["sequence_output"].numpy()[batch[3]], []
    for one in (encoder, unshare_blocks(encoder)):
        made = make_encoder(one, InferenceOptions(compute))
        assert any(half.low_rank for half in made.feed_forwards) == (one is encoder)
        found = made(*batch[:3])["sequence_output"].numpy()[batch[3]]
        if compute == "float32":
            require_near({"all": tf.constant(found)}, {"all": expected}, batch[3])
        cosines.append((found * expected).sum() / np.linalg.norm(found) / np.linalg.norm(expected))
    # As near as the model that it was made of, or nearer.
    assert 1 - cosines[1] < max(1.5 * (1 - cosines[0]), 1e-6)


# Extensions that run their blocks to a fixed point: answers, residual and steps by row.
BATCH = make_batch((9, 3, 6), 9)
SOLVERS = {
    "anderson": {},
    "fixed point": {"equilibrium_solver": "fixed_point"},
    "4 steps": {"equilibrium_solver": "fixed_point", "equilibrium_tolerance": 0.0, "equilibrium_max_steps": 4},
}


def make_solving(solver):
    """Its weights are small enough to have a fixed point."""
    return make_keras(**{
        "num_hidden_layers": 6, "depth_plan": "1+1x4+1", "initializer_range": 0.06, "gate_init": 1.0,
        "equilibrium_solver": "anderson", "equilibrium_tolerance": 1e-4, "equilibrium_max_steps": 60
    } | SOLVERS[solver])  # fmt: skip


@pytest.mark.parametrize(
    "solver, graph, apart",
    # As many steps as configured make the same numbers, and until it has converged one may make another step.
    [("anderson", True, 0.5), ("fixed point", False, 0.5), ("4 steps", False, 1e-3)],
)
def test_the_model_and_its_export_come_to_the_same_point(solver, graph, apart):
    encoder = make_solving(solver)
    twin, expected = make_encoder(encoder), encoder(features(BATCH))
    found = (compiled(twin) if graph else twin)(*BATCH[:3])
    for name, places in (("sequence_output", BATCH[3]), ("pooled_output", ...)):
        assert_allclose(found[name].numpy()[places], np.asarray(expected[name])[places], atol=2e-3)
    assert_allclose(found["residual"], expected["residual"], rtol=apart, atol=2e-5 * apart)
    assert np.abs(found["steps"].numpy() - np.asarray(expected["steps"])).max() <= 2


@pytest.mark.parametrize("compute", [pytest.param("bfloat16", marks=needs_avx512), "int8"])
def test_fewer_bits_stay_near(compute, products_anywhere):
    encoder = make_solving("4 steps")
    found = make_encoder(encoder, InferenceOptions(compute))(*BATCH[:3])
    assert np.abs(found["pooled_output"] - encoder(features(BATCH))["pooled_output"]).max() < 0.2
    assert np.isfinite(found["residual"]).all() and (found["steps"].numpy() >= 1).all()


def test_a_gated_equilibrium_has_the_range_of_its_gates_inputs():
    twin = make_encoder(make_keras(equilibrium_solver="fixed_point", feed_forward="glu"), InferenceOptions("int8"))
    assert twin.feed_forwards[0].ranges.shape == (2, 2)
