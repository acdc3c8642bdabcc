"""The parts that all sub-layers are made of: dense layers, activations, layer normalisation."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.fused import fuse


# In float32 whatever the dtype: XLA rounds every intermediate of a narrower one, which takes four times as long.
@fuse
def gelu_tanh(inputs: Tensor) -> Tensor:
    """Computes the tanh approximation of GELU (modeling.py:299 of google-research/albert)."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=True), inputs.dtype)


@fuse
def gelu_erf(inputs: Tensor) -> Tensor:
    """Computes the exact GELU, x times the normal distribution's cumulative function of x."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=False), inputs.dtype)


_ACTIVATIONS = {"gelu": gelu_tanh, "gelu_erf": gelu_erf}


def activation(name: str) -> Callable:
    """Gives the function behind a configuration's `hidden_act`."""
    return _ACTIVATIONS.get(name) or keras.activations.get(name)


def initializer(config: AlbertConfig) -> keras.initializers.Initializer:
    """Gives the truncated normal of modeling.py:create_initializer of google-research/albert."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(config: AlbertConfig, units: int, **kwargs: Any) -> keras.layers.Dense:
    """Makes a Dense layer with ALBERT's initial kernel: kernel [inputs, units], bias [units]."""
    return keras.layers.Dense(units, kernel_initializer=initializer(config), **kwargs)


def kernel_of(layer: keras.layers.Dense, dtype: str) -> Tensor:
    """Gives a kernel as numbers of `dtype`, also of a layer that `quantize("int8")` has rounded."""
    kernel = ops.cast(layer.kernel, dtype)
    return kernel / ops.cast(layer.kernel_scale, dtype) if layer.quantization_mode else kernel


@functools.cache
def _normalizer(epsilon: float) -> Callable:
    """Gives the function of (gamma, beta, inputs, residual if any) to the normalised sum."""

    @fuse
    def normalize(gamma, beta, inputs, *residual):
        exact = ops.cast(inputs, "float32")
        if residual:
            exact = exact + ops.cast(residual[0], "float32")
        mean, variance = ops.moments(exact, axes=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon) * ops.cast(gamma, "float32")
        return ops.cast((exact - mean) * scale + ops.cast(beta, "float32"), inputs.dtype)

    return normalize


@keras.saving.register_keras_serializable(package="albert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts.

    Mean and variance are float32 whatever the dtype policy: ALBERT's epsilon of 1e-12 (modeling.py:429) is zero in
    float16. In half precision epsilon is at least 1e-7, since the gradient of a constant row grows with
    1 / sqrt(epsilon) and must fit a float16.
    """

    def __init__(self, epsilon: float = 1e-12, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: tuple) -> None:
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs: Tensor, residual: Tensor = None) -> Tensor:
        """Normalises `inputs`, or their sum with `residual`."""
        epsilon = self.epsilon if inputs.dtype == "float32" else max(self.epsilon, 1e-7)
        values = (inputs,) if residual is None else (inputs, residual)
        return _normalizer(epsilon)(ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta), *values)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
