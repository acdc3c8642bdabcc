"""The two halves of a depth step with 8-bit products, oneDNN's.

Weights have a scale per output channel. Activations have one per depth step and place, found beforehand by
`calibration`: a row's answer does not depend on the rows beside it. Bias, activation function and residual are part
of the product; attention itself, layer norm and embeddings stay as in the bfloat16 or float32 encoder.
"""

import numpy as np
import tensorflow as tf

from serving.inference import onednn
from serving.inference.block import query_key_value
from serving.inference.rows import Rows
from serving.inference.weights import LayerNorm, arrays
from tfrecords.errors import UserError

# The smallest value of each activation function that oneDNN's products fuse.
LOWEST = {"gelu": -0.171, "gelu_erf": -0.171, "relu": 0.0}


class QuantizedDense(tf.Module):
    """kernel int8 [inputs, units], scales float32 [units].

    Args:
        kernel, bias: float32 arrays [inputs, units] and [units].
        lowest: where the inputs are unsigned 8-bit numbers, what their 0 stands for; None for signed ones.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, lowest: float | None = None):
        super().__init__()
        self.range = np.maximum(np.abs(kernel).max(axis=0), 1e-12)
        rounded = np.round(kernel * (127 / self.range))
        self.kernel = tf.Variable(rounded.astype(np.int8), trainable=False, name="kernel")
        self.bias = bias
        if lowest is not None:
            self.bias = bias + lowest * (rounded * (self.range / 127)).sum(axis=0)

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> tf.Tensor:
        """inputs: qint8 or quint8 [tokens, inputs], of which the largest number stands for `largest`.

        `dtype` is that of the result; tf.quint8 needs `output_range`, what its 0 and 255 stand for.
        """
        bounds = [-largest, largest, tf.constant(-self.range), tf.constant(self.range), *(output_range or ())]
        kernel, bias = tf.bitcast(self.kernel, tf.qint8), tf.constant(self.bias)
        return onednn.quantized_matmul(inputs, kernel, bias, bounds, dtype, function, residual)


class QuantizedAttention(tf.Module):
    """As block.Attention. ranges: float32 [steps, 2], the largest input of the two products at each step."""

    def __init__(self, layer, ranges: np.ndarray, dtype: tf.DType):
        super().__init__()
        self.query_key_value = QuantizedDense(*query_key_value(layer))
        self.output = QuantizedDense(*arrays(layer.output_dense))
        self.layer_norm = LayerNorm(layer.layer_norm, fused=True)
        self.ranges, self.dtype = ranges, dtype

    def __call__(self, hidden: tf.Tensor, rows: Rows, step: tf.Tensor | int, only_first: bool = False) -> tf.Tensor:
        first, second = tf.unstack(tf.constant(self.ranges)[step])
        context = rows.attend(self.query_key_value(quantize(hidden, first), first, self.dtype), only_first)
        residual = rows.first_tokens(hidden) if only_first else hidden
        return self.layer_norm(self.output(quantize(context, second), second, tf.float32, residual=residual))


class QuantizedFeedForward(tf.Module):
    """As block.FeedForward; ranges as there."""

    def __init__(self, layer, ranges: np.ndarray):
        super().__init__()
        self.function = onednn.FUSED_ACTIVATIONS[layer.config.hidden_act]
        self.lowest = LOWEST[layer.config.hidden_act]
        self.intermediate = QuantizedDense(*arrays(layer.intermediate))
        self.output = QuantizedDense(*arrays(layer.output_dense), self.lowest)
        self.layer_norm = LayerNorm(layer.layer_norm, fused=True)
        self.ranges = ranges

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        first, second = tf.unstack(tf.constant(self.ranges)[step])
        middle = self.intermediate(
            quantize(hidden, first),
            first,
            tf.quint8,
            function=self.function,
            output_range=(tf.constant(self.lowest), second),
        )
        return self.layer_norm(self.output(middle, second - self.lowest, tf.float32, residual=hidden))


def quantize(values: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """qint8, 127 standing for `largest`; what is beyond is clipped."""
    values = tf.cast(values, tf.float32)
    return tf.raw_ops.QuantizeV2(
        input=values, min_range=-largest, max_range=largest, T=tf.qint8, mode="SCALED", round_mode="HALF_TO_EVEN"
    ).output


def check_int8(hidden_act: str) -> None:
    """Raises UserError where int8 cannot run: the activation function, or TensorFlow without oneDNN's kernels."""
    if hidden_act not in LOWEST:
        raise UserError(f"int8 knows the hidden_act {', '.join(LOWEST)}; this model has '{hidden_act}'")
    probe = QuantizedDense(np.eye(8, dtype=np.float32), np.zeros(8, np.float32))
    onednn.require("int8", lambda: probe(quantize(tf.eye(8), tf.constant(1.0)), tf.constant(1.0), tf.float32))
