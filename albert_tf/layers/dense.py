"""The dense layer and the activations that all sub-layers share."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.fused import fuse


# In float32 whatever the dtype: XLA rounds every intermediate of a narrower one, which takes four times as long.
@fuse
def gelu_tanh(inputs):
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=True), inputs.dtype)


@fuse
def gelu_erf(inputs):
    return ops.cast(ops.gelu(ops.cast(inputs, "float32"), approximate=False), inputs.dtype)


_ACTIVATIONS = {"gelu": gelu_tanh, "gelu_erf": gelu_erf}


def activation(name: str):
    """The function behind a configuration's `hidden_act`."""
    return _ACTIVATIONS.get(name) or keras.activations.get(name)


def initializer(config: AlbertConfig):
    """Truncated normal, as modeling.py:create_initializer of google-research/albert."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(config: AlbertConfig, units: int, **kwargs) -> keras.layers.Dense:
    """Dense with ALBERT's kernel initialisation; kernel [inputs, units], bias [units]."""
    return keras.layers.Dense(units, kernel_initializer=initializer(config), **kwargs)


def kernel_of(layer: keras.layers.Dense, dtype):
    """The kernel as numbers of `dtype`, also of a layer that `quantize("int8")` has rounded."""
    kernel = ops.cast(layer.kernel, dtype)
    return kernel / ops.cast(layer.kernel_scale, dtype) if layer.quantization_mode else kernel
