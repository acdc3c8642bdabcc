"""The parts that all sub-layers are made of: dense layers, activations, layer normalisation."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.fused import fuse
from tfrecords.base.errors import UserError


# In float32 whatever the dtype: XLA rounds every intermediate of a narrower one, which takes four times as long.
@fuse
def gelu_tanh(inputs: Tensor) -> Tensor:
    """Computes the tanh approximation of GELU (modeling.py:299 of google-research/albert)."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=True), inputs.dtype)


@fuse
def gelu_erf(inputs: Tensor) -> Tensor:
    """Computes the exact GELU, x times the normal distribution's cumulative function of x."""
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=False), inputs.dtype)


NO_QUANTIZATION = "for 8-bit kernels use `python -m serving.export --compute=int8`"

_ACTIVATIONS = {"gelu": gelu_tanh, "gelu_erf": gelu_erf}


def activation(name: str) -> Callable:
    """Gives the function behind a configuration's `hidden_act`."""
    return _ACTIVATIONS.get(name) or keras.activations.get(name)


def initializer(config: AlbertConfig, scale: float = 1.0) -> keras.initializers.Initializer:
    """Gives the truncated normal of modeling.py:create_initializer of google-research/albert, times `scale`."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range * scale)


class Dense(keras.layers.Dense):
    """Keras's Dense layer, whose files also hold a LoRA adapter apart from its kernel, so that training goes on.

    The entries that Keras writes stay: the kernel with the adapter added. A layer without an adapter reads those. A
    layer with an adapter that reads a file without one takes its kernel, and the adapter begins anew.
    """

    _refusal: UserError | None = None

    def quantized_build(self, *args: Any, **kwargs: Any) -> None:
        """Raises UserError: a dtype such as "int8_from_float32" asks for rounded kernels, which nothing here reads."""
        raise UserError(f"a dtype of quantized kernels is not offered for these models; {NO_QUANTIZATION}")

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self.lora_enabled:
            for name, value in self._apart().items():
                store[name] = value
            store["lora_alpha"] = np.array(self.lora_alpha, "float32")

    def load_own_variables(self, store: Any) -> None:
        """Loads what `save_own_variables` or Keras's Dense wrote.

        Raises:
            UserError: the file has an adapter of another rank or alpha than the layer.
        """
        saved = set(store.keys())
        if self._refusal and not saved:
            raise self._refusal  # Keras comes again by another attribute, finds nothing, and shows the last error.
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
            self.lora_kernel_a.assign(begun)  # Keras sets both factors to 0, where neither has a gradient.

    def _apart(self) -> dict[str, keras.Variable]:
        names = {"base_kernel": "_kernel", "lora_kernel_a": "lora_kernel_a", "lora_kernel_b": "lora_kernel_b"}
        return {name: getattr(self, attribute) for name, attribute in names.items()}


def dense(config: AlbertConfig, units: int, scale: float = 1.0, **kwargs: Any) -> keras.layers.Dense:
    """Makes a Dense layer with ALBERT's initial kernel times `scale`: kernel [inputs, units], bias [units]."""
    return Dense(units, kernel_initializer=initializer(config, scale), **kwargs)


def residual_scale(config: AlbertConfig) -> float:
    """Gives the `scale` of the dense layers whose results are added to the residual stream.

    With pre-norm nothing normalises the sum of the 2 * num_steps results; each starts smaller by the root of their
    number (GPT-2: Radford et al. 2019, section 2.3), so that the stream has about the same size at any depth.
    """
    return (2 * config.num_steps) ** -0.5 if config.norm_position == "pre" else 1.0


@functools.cache
def _normalizer(epsilon: float, shifts: bool) -> Callable:
    """Gives the function of (gamma, beta if it shifts, inputs, residual if any) to the normalised sum."""

    @fuse
    def normalize(gamma, *others):
        beta, values = (others[0], others[1:]) if shifts else (None, others)
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
    """Gives the function of (scale, inputs, residual if any) to the normalised sum."""

    @fuse
    def normalize(scale, *values):
        return ops.cast(ops.rms_normalization(_sum(*values), scale, axis=-1, epsilon=epsilon), values[0].dtype)

    return normalize


def _sum(inputs, residual=None):
    exact = ops.cast(inputs, "float32")
    return exact if residual is None else exact + ops.cast(residual, "float32")


def _epsilon(layer: keras.layers.Layer, inputs: Tensor) -> float:
    return layer.epsilon if inputs.dtype == "float32" else max(layer.epsilon, 1e-7)


@keras.saving.register_keras_serializable(package="albert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts.

    Mean and variance are float32 whatever the dtype policy: ALBERT's epsilon of 1e-12 (modeling.py:429) is zero in
    float16. In half precision epsilon is at least 1e-7, since the gradient of a constant row grows with
    1 / sqrt(epsilon) and must fit a float16. Without `shifts` there is no beta.
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
        """Normalises `inputs`, or their sum with `residual`."""
        values = (inputs,) if residual is None else (inputs, residual)
        weights = (self.gamma, self.beta) if self.shifts else (self.gamma,)
        return _normalizer(_epsilon(self, inputs), self.shifts)(*map(ops.convert_to_tensor, weights), *values)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon, "shifts": self.shifts}


@keras.saving.register_keras_serializable(package="albert_tf")
class RMSNorm(keras.layers.RMSNormalization):
    """Divides the last axis by its root mean square, then scales; float32 inside, with LayerNorm's epsilon.

    Keras's own layer, which can take a residual and is one kernel in training.
    """

    def call(self, inputs: Tensor, residual: Tensor = None) -> Tensor:
        """Normalises `inputs`, or their sum with `residual`."""
        values = (inputs,) if residual is None else (inputs, residual)
        return _rms_normalizer(_epsilon(self, inputs))(ops.convert_to_tensor(self.scale), *values)


def norm(config: AlbertConfig, **kwargs: Any) -> LayerNorm | RMSNorm:
    """Makes the normalisation that a configuration asks for."""
    if config.norm == "rms_norm":
        return RMSNorm(epsilon=config.layer_norm_eps, **kwargs)
    return LayerNorm(config.layer_norm_eps, config.use_bias, **kwargs)
