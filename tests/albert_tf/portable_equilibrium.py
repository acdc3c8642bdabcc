"""What test_equilibrium.py computes under two Keras backends; run as `python portable_equilibrium.py OUTPUT.npz`."""

import sys

import keras
import numpy as np
from keras import ops

from albert_tf.layers.equilibrium import RectangleRows, Solver, implicit, phantom, solve, spectral_radius

ROWS, LENGTH, WIDTH = 3, 4, 6
WAYS = ("unrolled", "implicit fixed_point", "implicit anderson", "phantom")


def numbers(seed: int = 0) -> tuple[np.ndarray, ...]:
    """A matrix of spectral norm 0.7, and x and an upstream gradient [tokens, WIDTH]."""
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(WIDTH, WIDTH))
    matrix *= 0.7 / np.linalg.norm(matrix, 2)
    x, upstream = generator.normal(size=(2, ROWS * LENGTH, WIDTH))
    return tuple(array.astype("float32") for array in (matrix, x, upstream))


def rectangle() -> RectangleRows:
    return RectangleRows(np.ones((ROWS, LENGTH), "float32"))


def loss(x, matrix, upstream, way: str):
    """Of the fixed point of z = tanh(z matrix + x), by 200 steps in a row or solved."""

    def function(z):
        return ops.tanh(ops.matmul(z, matrix) + x)

    if way == "unrolled":
        state = x
        for _ in range(200):
            state = function(state)
    else:
        solver = Solver(way.split()[-1] if " " in way else "anderson", 1e-7, 200)
        state = solve(function, x, rectangle(), solver).state
        if way == "phantom":
            state = phantom(function, state, steps=60, damping=0.7)
        else:
            state = implicit(function, state, rectangle(), solver)
    return ops.sum(state * upstream)


def gradients(way: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the loss, with respect to x and the matrix."""
    matrix, x, upstream = numbers()
    if keras.backend.backend() == "jax":
        import jax

        found = jax.jit(jax.grad(lambda x, matrix: loss(x, matrix, upstream, way), argnums=(0, 1)))(x, matrix)
    else:
        import tensorflow as tf

        @tf.function(autograph=False)
        def compute(x, matrix):
            with tf.GradientTape() as tape:
                tape.watch((x, matrix))
                value = loss(x, matrix, upstream, way)
            return tape.gradient(value, (x, matrix))

        found = compute(tf.constant(x), tf.constant(matrix))
    return tuple(np.asarray(gradient) for gradient in found)


def compute() -> dict[str, np.ndarray]:
    """Solutions, gradients and spectral radii."""
    matrix, x, _ = numbers()
    results = {}
    for kind in ("fixed_point", "anderson"):
        for tolerance in (1e-5, 0.0):
            solution = solve(lambda z: ops.tanh(ops.matmul(z, matrix) + x), x, rectangle(), Solver(kind, tolerance, 40))
            for name, value in solution._asdict().items():
                results[f"{kind} {tolerance} {name}"] = np.asarray(value)
    results["radius"] = np.asarray(spectral_radius(lambda z: ops.matmul(z, matrix) + x, x, rectangle(), 100))
    for way in WAYS:
        for name, value in zip(("x", "matrix"), gradients(way)):
            results[f"{way} d{name}"] = value
    return results


if __name__ == "__main__":
    np.savez(sys.argv[1], **compute())
