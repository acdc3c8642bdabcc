"""The solver of fixed points and its gradients, on functions whose answers are known."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from numpy.testing import assert_allclose

from albert_tf.extensions.equilibrium import MEMORY, RIDGE, Solver, phantom, solve
from tests.albert_tf.depth_cases import rows_of

pytestmark = pytest.mark.usefixtures("eagerly")
SOLVERS = ("fixed_point", "anderson")


def solved(*args):
    return keras.tree.map_structure(np.asarray, solve(*args))


def each_its_own(count):
    return rows_of(np.ones((count, 1), "float32"))


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


def reference_anderson(function, x, steps):
    """The state after some steps of one row, float64, by the bordered system of Walker and Ni's eq. 2.2."""
    states, moves, state = [], [], x
    for _ in range(steps):
        states, moves = [*states, state][-MEMORY:], [*moves, function(state) - state][-MEMORY:]
        gram = np.array([[np.vdot(one, other) for other in moves] for one in moves])
        count = len(moves)
        border = np.zeros((count + 1, count + 1))
        border[0, 1:] = border[1:, 0] = 1
        border[1:, 1:] = gram + RIDGE * np.mean(np.diag(gram)) * np.eye(count)
        alpha = np.linalg.solve(border, np.eye(count + 1)[0])[1:]
        state = sum(weight * (one + move) for weight, one, move in zip(alpha, states, moves))
    return state


def test_anderson_is_that_of_a_reference_in_numpy():
    rows, length, width = 2, 3, 5
    generator = np.random.default_rng(3)
    kernel = generator.normal(size=(width, width)) * 0.4
    x = generator.normal(size=(rows * length, width))
    seen = []

    def function(z):
        seen.append(np.asarray(z))
        return ops.tanh(ops.matmul(z, kernel.astype("float32")) + x.astype("float32"))

    solve(function, x.astype("float32"), rows_of(np.ones((rows, length))), Solver("anderson", 0.0, 9))
    for row in range(rows):
        own = slice(row * length, (row + 1) * length)
        for step in (1, 2, 4, 8):
            expected = reference_anderson(lambda z, own=own: np.tanh(z @ kernel + x[own]), x[own], step)
            assert_allclose(seen[step][own], expected, atol=2e-5)


@pytest.mark.parametrize("kind", SOLVERS)
def test_what_does_not_contract_says_so_and_gives_the_iterate_that_moves_least(kind):
    start = np.array([[0.0, 0.3], [2.0, 2.0]], "float32")
    seen = []

    def function(z):
        seen.append(np.asarray(z))
        return 1 - 1.1 * z + 3 * ops.sin(7 * z)

    solution = solved(function, start, each_its_own(2), Solver(kind, 1e-3, 12))
    seen = np.stack(seen)[:12]
    moves = np.linalg.norm(1 - 2.1 * seen + 3 * np.sin(7 * seen), axis=-1)
    moves /= np.linalg.norm(seen, axis=-1).clip(1e-30)
    best = moves.argmin(axis=0)
    assert (solution.residual > 1e-3).all() and solution.steps.tolist() == [12, 12]
    assert_allclose(solution.residual, moves.min(axis=0), rtol=1e-3)
    assert_allclose(solution.state, seen[best, np.arange(2)], atol=1e-6)
