"""The solver of fixed points on functions whose answers are known, and the walk in the encoder and models on it."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder, AlbertPretrainer
from albert_tf.extensions.equilibrium import Solver, phantom, solve
from albert_tf.training.start import copy_weights
from tests.albert_tf.depth_cases import FEATURES, TEXTS, rows_of, small, trained
from tests.albert_tf.tiny import table
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
PLAIN = small()
# With the weights of an untrained model a step moves little.
SOLVED = PLAIN.replace(
    equilibrium_solver="anderson", equilibrium_tolerance=1e-4, equilibrium_max_steps=80, gate_init=1.0
)
STEPS = {"equilibrium_solver": "fixed_point", "equilibrium_tolerance": 0.0, "equilibrium_max_steps": 4}


def twin(source, config, **kwargs):
    """Another encoder with the same weights, the gate being its own."""
    encoder = AlbertEncoder(config, **kwargs)
    copy_weights(source, encoder)
    return encoder


@pytest.fixture(scope="module")
def plain():
    keras.utils.set_random_seed(0)
    encoder = AlbertEncoder(PLAIN)
    for variable in encoder.weights:  # Larger than untrained ones, so that steps differ.
        variable.assign(variable * 3 if len(variable.shape) > 1 else variable + 0.05)
    return encoder


PLANS = table("""
    {}                                                | 1
    {"depth_plan": "1+1x4+1", "num_hidden_layers": 6} | 4
    {"depth_plan": "2x4", "num_hidden_layers": 8}     | 1
    {"inner_group_num": 2}                            | 4
""")


@pytest.mark.parametrize("plan, kept", PLANS)
def test_a_closed_gate_and_the_plans_number_of_steps_are_albert(plan, kept):
    config = PLAIN.replace(**json.loads(plan))
    source = AlbertEncoder(config)
    other = twin(source, config.replace(**STEPS | {"equilibrium_phantom_steps": int(kept)}))
    ours, theirs = source(TEXTS), other(TEXTS)
    for name in ("sequence_output", "pooled_output"):
        assert_allclose(theirs[name], ours[name], atol=1e-6)
    assert np.asarray(theirs["steps"]).tolist() == [4, 4, 4] and np.isfinite(theirs["residual"]).all()


def test_it_is_where_many_steps_lead(plain):
    encoder = twin(plain, SOLVED)
    outputs = encoder(TEXTS)
    many = twin(plain, SOLVED.replace(**STEPS | {"equilibrium_max_steps": 100}))(TEXTS)
    tokens = TEXTS["input_mask"] > 0
    assert_allclose(outputs["sequence_output"][tokens], many["sequence_output"][tokens], atol=1e-2)
    assert (np.asarray(outputs["residual"]) < 1e-4).all() and (np.asarray(outputs["steps"]) < 80).all()
    # And knows its input.
    assert np.ptp(np.asarray(outputs["sequence_output"])[0], axis=0).max() > 0.1
    # A text has the same answer alone, and beside others in a packed row.
    ids = TEXTS["input_ids"]
    alone = encoder({"input_ids": ids[2:, :5]})
    assert_allclose(outputs["sequence_output"][2, :5], alone["sequence_output"][0], atol=1e-3)
    assert abs(np.asarray(outputs["steps"])[2] - np.asarray(alone["steps"])[0]) <= 1
    packed = encoder({
        "input_ids": np.concatenate([ids[2:, :5], ids[1:2, :4]], axis=1),
        "sequence_ids": np.array([[0] * 5 + [1] * 4], "int32"), "sequence_starts": np.array([[0, 5]], "int32")
    })  # fmt: skip
    assert_allclose(packed["sequence_output"][0, :5], alone["sequence_output"][0], atol=5e-3)
    assert_allclose(packed["pooled_output"][0, 0], alone["pooled_output"][0], atol=5e-3)


def test_implicit_gradients_are_those_of_many_steps(plain):
    implicit = SOLVED.replace(equilibrium_gradient="implicit", equilibrium_tolerance=1e-6)
    many = {"equilibrium_tolerance": 0.0, "equilibrium_solver": "fixed_point", "equilibrium_max_steps": 80}
    found, expected = (
        trained(twin(plain, config), TEXTS, lambda model, features, outputs: ops.mean(outputs["pooled_output"] ** 3))
        for config in (implicit, SOLVED.replace(**many, equilibrium_phantom_steps=80))
    )
    # Gradients, by the names of the weights.
    for name in filter("/".__contains__, expected):
        assert_allclose(found[name], expected[name], atol=1e-4, rtol=1e-3, err_msg=name)


def test_dropout_is_one_mask_for_all_steps():
    config = SOLVED.replace(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2, equilibrium_tolerance=1e-3)
    encoder = AlbertEncoder(config, seed=1)
    one, other = encoder(TEXTS, training=True), encoder(TEXTS, training=True)
    # It converges, as it would not with new masks at every step; the next call has others.
    assert (np.asarray(one["residual"]) < 1e-3).all()
    assert not np.allclose(one["sequence_output"], other["sequence_output"], atol=1e-2)


def test_what_does_not_converge_is_reported_by_a_pretrainer_too():
    """And there are no states on the way."""
    model = AlbertPretrainer(AlbertEncoder(SOLVED.replace(equilibrium_max_steps=1)))
    outputs = model.encoder(TEXTS)
    assert (np.asarray(outputs["residual"]) > 1e-4).all() and np.asarray(outputs["steps"]).tolist() == [1, 1, 1]
    assert "hidden_states" not in outputs
    with refused("has no hidden states"):
        model.encoder(TEXTS, output_hidden_states=True)
    model.compile()
    results = model.evaluate(FEATURES, verbose=0, return_dict=True)
    assert results["equilibrium_steps"] == 1 and results["equilibrium_unconverged"] == 1
    assert results["equilibrium_residual"] > 1e-4


def test_configuration_and_walk_say_the_same():
    assert {AlbertEncoder(SOLVED, walk=walk).walk for walk in ("unrolled", "equilibrium")} == {"equilibrium"}
    assert AlbertEncoder(PLAIN, walk="equilibrium").config == PLAIN.replace(equilibrium_solver="fixed_point")


IMPOSSIBLE = table("""
    {"sharing": "none"}                | equilibrium | no single run of blocks
    {"depth_plan": "1x2+1x2"}          | equilibrium | no single run of blocks
    {"equilibrium_solver": "anderson"} | loop        | leave out the walk
""")


@pytest.mark.parametrize("changes, walk, message", IMPOSSIBLE)
def test_what_cannot_be_is_an_error_in_one_line(changes, walk, message):
    with refused(message):
        AlbertEncoder(PLAIN.replace(**json.loads(changes)), walk=walk)


def test_phantom_steps_are_damped():
    """Two of z + d (f(z) - z), f(z) = z A + x, have the gradient d + d ((1 - d) + d A) by x."""
    matrix, point, upstream = np.random.default_rng(1).normal(size=(3, 6, 6)).astype("float32")
    given = tf.constant(point - point @ matrix)
    with tf.GradientTape() as tape:
        tape.watch(given)
        state = phantom(lambda z: z @ matrix + given, tf.constant(point), 2, 0.3)
        value = tf.reduce_sum(state * upstream)
    assert_allclose(state, point, atol=1e-5)
    expected = 0.3 * upstream + 0.3 * upstream @ (0.7 * np.eye(6) + 0.3 * matrix.T)
    assert_allclose(tape.gradient(value, given), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["fixed_point", "anderson"])
def test_what_does_not_contract_says_so_and_gives_the_iterate_that_moves_least(kind):
    start = np.array([[0.0, 0.3], [2.0, 2.0]], "float32")
    seen = []

    def function(z):
        seen.append(np.asarray(z))
        return 1 - 1.1 * z + 3 * ops.sin(7 * z)

    solution = solve(function, start, rows_of(np.ones((2, 1), "float32")), Solver(kind, 1e-3, 12))
    solution = keras.tree.map_structure(np.asarray, solution)
    seen = np.stack(seen)[:12]
    moves = np.linalg.norm(1 - 2.1 * seen + 3 * np.sin(7 * seen), axis=-1)
    moves /= np.linalg.norm(seen, axis=-1).clip(1e-30)
    best = moves.argmin(axis=0)
    assert (solution.residual > 1e-3).all() and solution.steps.tolist() == [12, 12]
    assert_allclose(solution.residual, moves.min(axis=0), rtol=1e-3)
    assert_allclose(solution.state, seen[best, np.arange(2)], atol=1e-6)
