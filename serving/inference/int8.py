"""The two halves of a depth step with 8-bit products: oneDNN's, by the op that TensorFlow's own quantizer targets.

Weights have a scale per output channel. Activations have one per depth step and place, found beforehand by
`calibration`: a row's answer does not depend on the rows beside it. Bias, activation function and residual are part
of the product; attention itself, layer norm and embeddings stay as in the bfloat16 or float32 encoder.
"""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library

from serving.inference.block import query_key_value
from serving.inference.rows import Rows
from serving.inference.weights import Dense, LayerNorm, dense
from tfrecords.errors import UserError

# The fused op's name and the smallest value of each activation function.
ACTIVATIONS = {"gelu": ("GeluApproximate", -0.171), "gelu_erf": ("GeluExact", -0.171), "relu": ("Relu", 0.0)}


class QuantizedDense(tf.Module):
    """kernel int8 [inputs, units], scales float32 [units].

    Args:
        layer: in float32.
        lowest: where the inputs are unsigned 8-bit numbers, what their 0 stands for; None for signed ones.
    """

    def __init__(self, layer: Dense, lowest: float | None = None):
        super().__init__()
        self.range = np.maximum(np.abs(layer.kernel).max(axis=0), 1e-12)
        kernel = np.round(layer.kernel * (127 / self.range)).astype(np.int8)
        # The op takes the weights' being constant as its word: a variable is packed once too.
        self.kernel = tf.Variable(kernel, trainable=False, name="kernel")
        self.bias = layer.bias
        if lowest is not None:
            self.bias = layer.bias + lowest * (kernel.astype(np.float32) * (self.range / 127)).sum(axis=0)

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> tf.Tensor:
        """inputs: qint8 or quint8 [tokens, inputs], of which the largest number stands for `largest`.

        `dtype` is that of the result; tf.quint8 needs `output_range`, what its 0 and 255 stand for.
        """
        quantized = dtype == tf.quint8
        bounds = [-largest, largest, tf.constant(-self.range), tf.constant(self.range), *(output_range or ())]
        operands = [inputs, tf.bitcast(self.kernel, tf.qint8), tf.constant(self.bias)]
        fused = ["BiasAdd", function, "Requantize" if quantized else "Dequantize"]
        if residual is not None:
            operands.append(residual)
            fused[1] = "Add"
        results = op_def_library.apply_op(
            "_QuantizedMatMul",
            name="quantized_matmul",
            device_inputs=operands,
            host_inputs=bounds,
            Tdevice_outputs=[dtype],
            Thost_outputs=[tf.float32, tf.float32] if quantized else [],
            **{"T1": inputs.dtype, "T2": tf.qint8, "Tbias": tf.float32, "U": tf.float32, "Tout": dtype},
            **{"transpose_a": False, "transpose_b": False, "is_weight_const": True, "is_bias_const": True},
            fused_ops=[name for name in fused if name],
            input_quant_mode="SCALED",
            output_quant_mode="MIN_FIRST" if quantized else "SCALED",
            leakyrelu_alpha=0.0,
        )
        return tf.nest.flatten(results)[0]


class QuantizedAttention(tf.Module):
    """As block.Attention. ranges: float32 [steps, 2], the largest input of the two products at each step."""

    def __init__(self, layer, ranges: np.ndarray, dtype: tf.DType):
        super().__init__()
        self.query_key_value = QuantizedDense(query_key_value(layer, tf.float32))
        self.output = QuantizedDense(dense(layer.output_dense, tf.float32))
        self.layer_norm = LayerNorm(layer.layer_norm)
        self.ranges, self.dtype = ranges, dtype

    def __call__(self, hidden: tf.Tensor, rows: Rows, step: tf.Tensor | int) -> tf.Tensor:
        first, second = tf.unstack(tf.constant(self.ranges)[step])
        context = rows.attend(self.query_key_value(quantize(hidden, first), first, self.dtype))
        return self.layer_norm(self.output(quantize(context, second), second, tf.float32, residual=hidden))


class QuantizedFeedForward(tf.Module):
    """As block.FeedForward; ranges as there."""

    def __init__(self, layer, ranges: np.ndarray):
        super().__init__()
        self.function, self.lowest = ACTIVATIONS[layer.config.hidden_act]
        self.intermediate = QuantizedDense(dense(layer.intermediate, tf.float32))
        self.output = QuantizedDense(dense(layer.output_dense, tf.float32), self.lowest)
        self.layer_norm = LayerNorm(layer.layer_norm)
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
    if hidden_act not in ACTIVATIONS:
        raise UserError(f"int8 knows the hidden_act {', '.join(ACTIVATIONS)}; this model has '{hidden_act}'")
    probe = QuantizedDense(Dense(np.eye(8, dtype=np.float32), np.zeros(8, np.float32), tf.float32))
    try:
        tf.function(
            lambda: probe(quantize(tf.eye(8), tf.constant(1.0)), tf.constant(1.0), tf.float32), autograph=False
        )()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = "this TensorFlow has no _QuantizedMatMul kernel; it needs a CPU build with oneDNN"
        raise UserError(f"int8 cannot run here: {reason} (and TF_ENABLE_ONEDNN_OPTS not 0)") from error
