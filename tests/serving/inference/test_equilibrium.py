"""Exports that run their blocks to a fixed point: answers, residual and steps by row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from serving.inference import InferenceOptions, make_encoder
from tests.serving.inference.encoders import compiled, features, make_batch, make_keras, needs_avx512

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
