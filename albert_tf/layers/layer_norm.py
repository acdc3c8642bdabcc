"""Layer normalisation that is safe at every dtype."""

import functools

import keras
from keras import ops

from albert_tf.layers.fused import fuse


@functools.cache
def _normalizer(epsilon: float):
    """The function (gamma, beta, inputs, residual if any) to the normalised sum."""

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

    def __init__(self, epsilon: float = 1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs, residual=None):
        """Normalises inputs, or the sum of both."""
        epsilon = self.epsilon if inputs.dtype == "float32" else max(self.epsilon, 1e-7)
        values = (inputs,) if residual is None else (inputs, residual)
        return _normalizer(epsilon)(ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta), *values)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
