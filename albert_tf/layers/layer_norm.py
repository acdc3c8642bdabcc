"""Layer normalisation that is safe at every dtype."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="albert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts.

    Mean, variance and epsilon live in float32 whatever the dtype policy: ALBERT's 1e-12 (modeling.py:429) is zero in
    float16, and a constant row would divide by it.
    """

    def __init__(self, epsilon: float = 1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs):
        exact = ops.cast(inputs, "float32")
        mean, variance = ops.moments(exact, axes=-1, keepdims=True)
        scale = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, "float32")
        return ops.cast((exact - mean) * scale + ops.cast(self.beta, "float32"), inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
