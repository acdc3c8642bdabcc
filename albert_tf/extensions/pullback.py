"""Vector-Jacobian products and custom gradients, for TensorFlow and JAX."""

from collections.abc import Callable

import keras
from keras import ops

from albert_tf.base import Tensor

# The library of the backend only: under JAX models need no TensorFlow.
if keras.backend.backend() == "jax":
    import jax
else:
    import tensorflow as tf

Function = Callable[[Tensor], Tensor]


def detached(function: Function, state: Tensor) -> Function:
    """Returns `function` without gradients to the values in its closure, which JAX would otherwise compute."""
    if keras.backend.backend() != "jax":
        return function  # TensorFlow stops at stop_gradient.
    # In JAX a loop's closure would carry tangents, and a while loop has no reverse gradient.
    pure, constants = jax.closure_convert(function, state)
    constants = jax.lax.stop_gradient(constants)
    return lambda state: pure(state, *constants)


def pullback(function: Function, state: Tensor) -> Function:
    """Returns a function from a vector v to J^T v, where J is the Jacobian of `function` at `state`."""
    if keras.backend.backend() == "jax":
        product = jax.vjp(lambda state: ops.cast(function(state), "float32"), state)[1]
        return lambda vector: product(vector)[0]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(state)
        after = ops.cast(function(state), "float32")
    return lambda vector: tape.gradient(after, state, vector)


def with_gradient_of(value: Tensor, other: Tensor) -> Tensor:
    """Returns `value`, whose gradient goes to `other` alone in the backward pass."""
    if keras.backend.backend() == "jax":
        swapped = jax.custom_vjp(lambda value, other: value)
        swapped.defvjp(lambda value, other: (value, None), lambda _, upstream: (None, upstream))
        return swapped(value, other)

    @tf.custom_gradient
    def hook(value, other):
        return tf.identity(value), lambda upstream: (None, upstream)

    return hook(value, other)


def with_changed_gradient(
    after: Tensor, function: Function, state: Tensor, change: Callable[[Function, Tensor], Tensor]
) -> Tensor:
    """Returns `after`; the backward pass replaces its gradient v by change(pullback(function, state), v)."""
    if keras.backend.backend() == "jax":
        return _with_changed_gradient_jax(after, function, state, change)

    @tf.custom_gradient
    def hook(after):
        return tf.identity(after), lambda upstream: change(pullback(function, state), upstream)

    return hook(after)


def _with_changed_gradient_jax(after, function, state, change):
    # Closed-over values must be arguments: the backward pass runs outside their scope.
    pure, constants = jax.closure_convert(function, state)

    @jax.custom_vjp
    def hook(after, state, constants):
        return after

    def backward(kept, upstream):
        state, constants = kept
        return change(pullback(lambda z: pure(z, *constants), state), upstream), None, None

    hook.defvjp(lambda after, state, constants: (after, (state, constants)), backward)
    return hook(after, state, jax.lax.stop_gradient(constants))
