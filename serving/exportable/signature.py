"""What a server offers of a model: named functions, each with its inputs."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


class Signature(NamedTuple):
    """A function of tensors by name to a dict of tensors, and the RPC that may call it besides Predict."""

    function: Callable[..., dict[str, tf.Tensor]]
    inputs: dict[str, tf.TensorSpec]
    method: str = PREDICT


def specs(*names: str, dtype: tf.DType = tf.string, shape: tuple = (None,)) -> dict[str, tf.TensorSpec]:
    """Inputs of one dtype and shape, [batch] strings unless said otherwise."""
    return {name: tf.TensorSpec(shape, dtype, name=name) for name in names}
