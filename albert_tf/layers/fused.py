"""Pure functions of tensors as one kernel forward and one backward, for training.

TensorFlow runs a chain of element-wise operations one by one, each through memory, and keeps every result for the
backward pass. On the 2-core CPU that this was measured on, they took as long as half of the matrix products. XLA makes
one loop of them. Matrix products stay outside: TensorFlow's own are faster in bfloat16. Under JAX, XLA compiles the
whole step anyway.

Off unless a training step asks for it, since an exported graph must run where there is no XLA.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator

import keras

# Smaller arrays stay in the cache anyway and do not repay the compilation.
LEAST_ELEMENTS = 1 << 17

_ON = contextvars.ContextVar("fused", default=False)


@contextlib.contextmanager
def fusing() -> Iterator[None]:
    """Fuses the functions under `fuse` in TensorFlow graphs traced within; without effect on other backends."""
    before = _ON.set(keras.backend.backend() == "tensorflow")
    try:
        yield
    finally:
        _ON.reset(before)


def fuse(function: Callable) -> Callable:
    """Decorates a function of tensors that returns a tensor, or several, with no state and no Python arguments.

    The backward pass computes the function anew from its inputs.
    """

    @functools.wraps(function)
    def choose(*inputs):
        large = _ON.get() and any(_elements(array) >= LEAST_ELEMENTS for array in inputs)
        return _fused(function)(*inputs) if large else function(*inputs)

    return choose


def _elements(array) -> int:
    """0 where the shape is not known when the graph is built: XLA would compile anew for every one."""
    return 0 if None in array.shape else math.prod(array.shape)


@functools.cache
def _fused(function: Callable) -> Callable:
    import tensorflow as tf

    forward = tf.function(function, jit_compile=True, autograph=False)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    @tf.custom_gradient
    def apply(*inputs):
        return forward(*inputs), lambda *upstream: backward(inputs, upstream if len(upstream) > 1 else upstream[0])

    return apply
