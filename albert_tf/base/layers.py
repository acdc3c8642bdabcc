"""Layers, tensor functions and differentiable loops for models."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend.common.global_state import get_global_attribute

from albert_tf.base import Tensor
from tfrecords.base.errors import UserError


def repeat(
    cycle: Callable, times: int, state: Any, drawn: Tensor | None = None, goes_on: Callable | None = None
) -> Any:
    """Applies state = cycle(i, state) for i = 0 .. times - 1, as a differentiable loop.

    Args:
        cycle: a function of i (an int or a scalar tensor) and the state.
        times: number of iterations.
        state: tensors of constant shapes, alone or in tuples.
        drawn: int32 scalar that replaces `times`; at most `times`.
        goes_on: takes the state and returns whether to continue. The loop then has no gradients. Under JAX, it is
            ignored.
    """
    if times == 1:
        return cycle(0, state)
    if keras.backend.backend() == "jax":
        # lax.while_loop has no reverse gradient; fori_loop with a fixed count has.
        run = cycle if drawn is None else lambda i, state: run_if(i < drawn, lambda state: cycle(i, state), state)
        return ops.fori_loop(0, times, run, state)
    end = times if drawn is None else drawn

    def is_left(i: Tensor, state: Any) -> Tensor:
        is_open = True if goes_on is None else goes_on(state)
        return i < end if is_open is True else ops.logical_and(i < end, is_open)

    # XLA needs the bound to size what the backward pass stores.
    most = times if goes_on is None else None
    return ops.while_loop(is_left, lambda i, state: (i + 1, cycle(i, state)), (0, state), maximum_iterations=most)[1]


def run_if(condition: Tensor, step: Callable, state: Any) -> Any:
    """Returns step(state) if the condition holds, else `state`."""
    return ops.cond(condition, lambda: step(state), lambda: state)


# The library of the backend only: under JAX models need no TensorFlow.
if keras.backend.backend() == "jax":
    import jax
elif keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:
    raise UserError(
        f"Keras's backend is {keras.backend.backend()}; models need tensorflow or jax: set KERAS_BACKEND=tensorflow"
    )

# Smaller arrays stay in the cache anyway and do not repay the compilation.
LEAST_ELEMENTS = 1 << 17

_ON = contextvars.ContextVar("fused", default=False)


@contextlib.contextmanager
def fusing() -> Iterator[None]:
    """A context in which XLA compiles functions decorated with `fuse`, if the backend is TensorFlow."""
    before = _ON.set(keras.backend.backend() == "tensorflow")
    try:
        yield
    finally:
        _ON.reset(before)


def fuse(function: Callable) -> Callable:
    """Decorates a stateless function of tensors; within `fusing`, XLA compiles it for large inputs.

    The backward pass recomputes the function from its inputs.
    """

    @functools.wraps(function)
    def choose(*inputs):
        large = _ON.get() and any(_elements(array) >= LEAST_ELEMENTS for array in inputs)
        return _fused(function)(*inputs) if large else function(*inputs)

    return choose


def _elements(array) -> int:
    # 0 for a dynamic shape, for which XLA would recompile at each size.
    return 0 if None in array.shape else math.prod(array.shape)


@functools.cache
def _fused(function: Callable) -> Callable:
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


# Always float32: XLA rounds every intermediate of a narrower dtype, which takes four times as long.
@fuse
def gelu_tanh(inputs: Tensor) -> Tensor:
    """Computes GELU by its tanh approximation (modeling.py:299 of google-research/albert)."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=True), inputs.dtype)


@fuse
def gelu_erf(inputs: Tensor) -> Tensor:
    """Computes the exact GELU: x times the normal CDF of x."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=False), inputs.dtype)


# Features that are floats, besides weights.
_OF_FLOATS = ("memory", "target_mapping")
NO_QUANTIZATION = "quantized kernels are not offered here; for those use `python -m serving.export --compute=int8`"

_ACTIVATIONS = {"gelu": gelu_tanh, "gelu_erf": gelu_erf}


def activation(name: str) -> Callable:
    """Returns the activation function for a configuration's `hidden_act`."""
    return _ACTIVATIONS.get(name) or keras.activations.get(name)


class Dense(keras.layers.Dense):
    """A Keras Dense layer that also saves its LoRA adapter, so that training can resume.

    Files also hold the merged kernel under Keras's usual name, so that a layer without an adapter can load it.
    """

    _refusal: UserError | None = None

    def quantized_build(self, *args: Any, **kwargs: Any) -> None:
        raise UserError(NO_QUANTIZATION)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.lora_enabled:
            for name, value in self._apart().items():
                store[name] = value
            store["lora_alpha"] = np.array(self.lora_alpha, "float32")

    def load_own_variables(self, store: Any) -> None:
        saved = set(store.keys())
        if self._refusal and not saved:
            raise self._refusal  # Keras retries by another attribute, fails, and shows the last error.
        begun = ops.convert_to_numpy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables({name: store[name] for name in saved if name.isdigit()})
        if not self.lora_enabled:
            return
        if "lora_alpha" in saved:
            theirs = int(store["lora_kernel_a"].shape[-1]), float(np.array(store["lora_alpha"]))
            if theirs != (self.lora_rank, float(self.lora_alpha)):
                self._refusal = UserError(
                    f"the file has an adapter of rank {theirs[0]} (alpha {theirs[1]:g}) for '{self.path}', the model "
                    f"one of rank {self.lora_rank} (alpha {self.lora_alpha:g}); call enable_lora({theirs[0]}), or load "
                    "into a model without adapters"
                )
                raise self._refusal
            for name, variable in self._apart().items():
                variable.assign(store[name])
        else:
            self.lora_kernel_a.assign(begun)  # Keras sets both factors to 0, where their gradients are 0.

    def _apart(self) -> dict[str, keras.Variable]:
        names = {"base_kernel": "_kernel", "lora_kernel_a": "lora_kernel_a", "lora_kernel_b": "lora_kernel_b"}
        return {name: getattr(self, attribute) for name, attribute in names.items()}


@functools.cache
def _normalizer(epsilon: float, shifts: bool) -> Callable:
    @fuse
    def normalize(gamma, *others):
        beta, values = (others[0], others[1:]) if shifts else (None, others)
        # In float32: ALBERT's epsilon of 1e-12 (modeling.py:429) is 0 in float16.
        exact = _sum(*values)
        mean, variance = ops.moments(exact, axes=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
        normalised = (exact - mean) * scale
        if shifts:
            normalised = normalised + ops.cast(beta, "float32")
        return ops.cast(normalised, values[0].dtype)

    return normalize


@functools.cache
def _rms_normalizer(epsilon: float) -> Callable:
    @fuse
    def normalize(scale, *values):
        return ops.cast(ops.rms_normalization(_sum(*values), scale, axis=-1, epsilon=epsilon), values[0].dtype)

    return normalize


def _sum(inputs, residual=None):
    exact = ops.cast(inputs, "float32")
    return exact if residual is None else exact + ops.cast(residual, "float32")


def _epsilon(layer: keras.layers.Layer, inputs: Tensor) -> float:
    # Gradients of constant rows must fit float16.
    return layer.epsilon if inputs.dtype == "float32" else max(layer.epsilon, 1e-7)


@keras.saving.register_keras_serializable(package="albert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalizes the last axis to mean 0 and variance 1, then scales and shifts.

    Mean and variance are float32 under every dtype policy. In half precision, epsilon is at least 1e-7. Without
    `shifts`, there is no beta.
    """

    def __init__(self, epsilon: float = 1e-12, shifts: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon, self.shifts = epsilon, shifts
        self.beta: Any = None

    def build(self, input_shape: tuple) -> None:
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        if self.shifts:
            self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs: Tensor, residual: Tensor = None) -> Tensor:
        values = (inputs,) if residual is None else (inputs, residual)
        weights = (self.gamma, self.beta) if self.shifts else (self.gamma,)
        return _normalizer(_epsilon(self, inputs), self.shifts)(*map(ops.convert_to_tensor, weights), *values)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon, "shifts": self.shifts}


@keras.saving.register_keras_serializable(package="albert_tf")
class RMSNorm(keras.layers.RMSNormalization):
    """Divides the last axis by its root mean square in float32, then scales.

    Epsilon is as in LayerNorm.
    """

    def call(self, inputs: Tensor, residual: Tensor = None) -> Tensor:
        values = (inputs,) if residual is None else (inputs, residual)
        return _rms_normalizer(_epsilon(self, inputs))(ops.convert_to_tensor(self.scale), *values)


class _Given(keras.random.SeedGenerator):
    def __init__(self, seed: Tensor):
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


def site_seed(seed: Tensor, site: Tensor) -> Tensor:
    """Returns a seed, uint32 [2], that differs for each dropout number `site`; None if `seed` is None."""
    if seed is None:
        return None
    # Only the first of the two numbers changes, so that seeds never collide.
    return seed + ops.cast(ops.stack([ops.cast(site, "int32") + 1, 0]), seed.dtype)


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate), unless `seed` is None."""
    if rate == 0 or seed is None:
        return inputs
    return keras.random.dropout(inputs, rate, seed=_Given(seed))


class SeedInFiles:
    """A mixin that saves the seed generator's state, which Keras does not."""

    seed_generator: Any = None

    def save_own_variables(self, store: Any) -> None:
        if self.seed_generator is not None:
            store["seed_generator_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store: Any) -> None:
        if self.seed_generator is not None and "seed_generator_state" in set(store.keys()):
            self.seed_generator.state.assign(store["seed_generator_state"])


@keras.saving.register_keras_serializable(package="albert_tf")
class ResumableDropout(SeedInFiles, keras.layers.Dropout):
    """A Dropout whose random sequence continues when its model is loaded."""


def plain(error: UserError) -> UserError:
    """Marks an error so that Keras passes it on unchanged."""
    # Keras passes errors with this mark on; it wraps others in a report of every nested call.
    error._keras_call_info_injected = True  # type: ignore[attr-defined]
    return error


def rows_at(table: Tensor, indices: Tensor, name: str, first: int = 0) -> Tensor:
    """Looks up rows of a table [n, width] at int indices [...], after adding `first` to each: returns [..., width].

    An index out of range raises UserError in eager mode, and a TensorFlow error in graphs on a CPU. With XLA or a GPU,
    the returned row is NaN.
    """
    table, size = ops.convert_to_tensor(table), ops.shape(table)[0]
    check_range(indices, size - first, name, least=-first)
    indices = ops.convert_to_tensor(indices) + first
    is_row = in_range(indices, size)
    if keras.backend.backend() == "tensorflow":
        # Keras's `take` counts negative indices from the end.
        rows = tf.gather(table, indices)
    else:
        rows = ops.take(table, ops.where(is_row, indices, 0), axis=0)
    return ops.where(is_row[..., None], rows, np.nan)


def gather_positions(sequence_output: Tensor, positions: Tensor, name: str = "masked_lm_positions") -> Tensor:
    """Returns the vectors at `positions`, int [batch, n], as [batch, n, hidden]; raises errors as `rows_at` does."""
    batch, length, width = ops.shape(sequence_output)
    check_range(positions, length, name)
    positions = ops.cast(positions, "int32")
    rows = positions + length * ops.arange(batch, dtype="int32")[:, None]
    # A position outside its row must not select from the next row.
    rows = ops.where(in_range(positions, length), rows, -1)
    return rows_at(ops.reshape(sequence_output, (-1, width)), rows, name)


def or_nan(values: Tensor, indices: Tensor, size: Any) -> Tensor:
    """Returns `values`, replaced by NaN wherever the index in `indices` is not from 0 to `size` - 1."""
    return values * ops.cast(ops.where(in_range(indices, size), 1.0, np.nan), values.dtype)


def in_range(indices: Tensor, size: Any) -> Tensor:
    """Returns whether each index is from 0 to size - 1: bool [...]."""
    return ops.logical_and(indices >= 0, indices < size)


def check_range(indices: Any, most: Any, name: str, least: int = 0) -> None:
    """Raises UserError if the value of an index is known and not from `least` to `most` - 1."""
    values = known(indices)
    if values is None or not isinstance(most, int) or not values.size:
        return
    wrong = (values < least) | (values >= most)
    if wrong.any():
        place = ", ".join(map(str, np.argwhere(wrong)[0]))
        raise plain(UserError(f"{name}: {values[wrong][0]} at [{place}] is not from {least} to {most - 1}"))


def whole(name: str, feature: Any) -> Any:
    """Returns a feature as int32, unless it is one of floats; Keras forgets dtypes when it makes shapes from a file."""
    is_whole = "float" not in str(feature.dtype) or name.endswith("_weights") or name in _OF_FLOATS
    return feature if is_whole else ops.cast(feature, "int32")


def is_symbolic() -> bool:
    """Returns whether Keras computes only shapes and dtypes."""
    return get_global_attribute("symbolic_scope") is not None


def known(values: Any) -> np.ndarray | None:
    """Returns the NumPy value of an array or eager tensor, else None."""
    if isinstance(values, np.ndarray):
        return values
    if keras.backend.backend() == "tensorflow":
        return values.numpy() if isinstance(values, tf.__internal__.EagerTensor) else None
    if keras.backend.backend() == "jax":
        is_known = isinstance(values, jax.Array) and not isinstance(values, jax.core.Tracer)
        return np.asarray(values) if is_known else None
    return None


class MeasuredMean(keras.metrics.Mean):
    """A mean that has no result before its first update."""

    _is_measured = False

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        self._is_measured = True
        super().update_state(values, sample_weight)

    def result(self) -> Any:
        return super().result() if self._is_measured else {}
