"""The two halves of a depth step with 8-bit products, oneDNN's.

Weights have a scale per output channel. Activations have one per depth step and place, found beforehand by
`calibration`: a row's answer does not depend on the rows beside it. Bias, activation function and residual are part
of the product; attention itself and layer norm stay as in the float32 encoder.

Where a CPU has no VNNI, oneDNN makes activations unsigned (0 to 255) and adds the products of inputs 2i and 2i + 1 up
in 16 bits, which clips them: with weights of 127 beside 127, at half their sum. By experiment it does so with SSE4.1,
AVX, AVX2 and AVX-512 alike, for any number of tokens, and never pairs others. So two neighbouring weights of one sign
may add up to 128, and 255 * 128 still fits.
"""

import contextlib

import numpy as np
import tensorflow as tf

from albert_tf.layers.dense import activation
from serving.inference import onednn
from serving.inference.attention import Reach, Rows
from serving.inference.dense import Dense, arrays, norm
from serving.inference.layers import attention_low_rank, feed_forward_low_rank, query_key_value, replaced
from serving.inference.relative import RelativeScores
from tfrecords.base.errors import UserError

# The smallest value of each activation function that oneDNN's products fuse.
LOWEST = {"gelu": -0.171, "gelu_erf": -0.171, "relu": 0.0}


class QuantizedDense(tf.Module):
    """kernel int8 [inputs, units], scales float32 [units].

    Args:
        kernel, bias: float32 arrays [inputs, units] and [units].
        vnni: whether only CPUs with VNNI will run it.
        lowest: what the 0 of the inputs stands for, where that is always the same; None: they are `quantize`'s, whose
            128 stands for 0.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, vnni: bool = False, lowest: float | None = None):
        super().__init__()
        self.range = np.maximum(np.abs(kernel).max(axis=0) if vnni else largest_pairs(kernel), 1e-12)
        rounded = np.round(kernel * (127 / self.range))
        self.kernel = tf.Variable(rounded.astype(np.int8), trainable=False, name="kernel")
        self.sums = (rounded * (self.range / 127)).sum(axis=0).astype(np.float32)
        self.is_shifted = lowest is None
        self.bias = bias if lowest is None else bias + lowest * self.sums

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> tf.Tensor:
        """Multiplies quint8 [tokens, inputs], of which the largest number stands for `largest`.

        `dtype` is that of the result; tf.quint8 needs `output_range`, what its 0 and 255 stand for.
        """
        bias, largest = self.of_inputs(largest)
        bounds = [-largest, largest, tf.constant(-self.range), tf.constant(self.range), *(output_range or ())]
        kernel, is_const = tf.bitcast(self.kernel, tf.qint8), not self.is_shifted
        return onednn.quantized_matmul(inputs, kernel, bias, bounds, dtype, function, residual, is_const)

    def of_inputs(self, largest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives the bias that undoes the inputs' shift, float32 [units], and what 255 stands for without it."""
        if not self.is_shifted:
            return tf.constant(self.bias), largest
        return self.bias - (128 / 127) * largest * self.sums, (255 / 127) * largest


class QuantizedProjection(tf.Module):
    """The embeddings' projection with an 8-bit product.

    Args:
        layer: the same in float32.
        largest: of its inputs.
        vnni: as QuantizedDense.
    """

    def __init__(self, layer: Dense, largest: float, vnni: bool):
        super().__init__()
        self.dense, self.largest = QuantizedDense(layer.kernel.numpy(), layer.bias.numpy(), vnni), largest

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Projects float32 [tokens, inputs] to float32 [tokens, units]."""
        largest = tf.constant(self.largest, tf.float32)
        return self.dense(quantize(inputs, largest), largest, tf.float32)


class QuantizedAttention(tf.Module):
    """Attention with 8-bit products.

    Args:
        layer: Keras's SelfAttention.
        ranges: float32 [steps, 2], the largest inputs of its two products at each step.
        vnni: See QuantizedDense.
        relative: See Attention.
    """

    def __init__(self, layer, ranges: np.ndarray, vnni: bool, relative: RelativeScores | None = None):
        super().__init__()
        self.relative = relative
        self.is_pre = layer.config.norm_position == "pre"
        self.query_key_value = QuantizedDense(*query_key_value(layer), vnni)
        self.output = QuantizedDense(*arrays(layer.output_dense), vnni)
        self.low_rank = attention_low_rank(layer, tf.float32)
        self.layer_norm = norm(layer.layer_norm)
        self.ranges = ranges

    def __call__(
        self,
        hidden: tf.Tensor,
        rows: Rows,
        step: tf.Tensor | int,
        only_summary: bool = False,
        is_local: bool = False,
    ) -> tf.Tensor:
        first, second = tf.unstack(tf.constant(self.ranges)[step])
        inputs = rows.with_memory(self.layer_norm(hidden) if self.is_pre else hidden, step)
        added = self.low_rank.get("query_key_value", inputs, step)
        context = self.query_key_value(quantize(inputs, first), first, tf.float32, residual=added)
        context = rows.attend(context, Reach(only_summary, is_local, self.relative, step, onednn.batch_matmul))
        residual = rows.summary_tokens(hidden) if only_summary else hidden
        residual = self.low_rank.get("output", context, step, residual)
        total = self.output(quantize(context, second), second, tf.float32, residual=residual)
        return total if self.is_pre else self.layer_norm(total)


class QuantizedFeedForward(tf.Module):
    """FeedForward with 8-bit products, its arguments those of QuantizedAttention.

    The activation function's results become unsigned numbers within the product. Where a gate multiplies them, or what
    is of low rank comes before, it is float32 numbers that are computed with, and what comes of it is rounded to
    signed ones. What is of low rank stays float32.
    """

    def __init__(self, layer, ranges: np.ndarray, vnni: bool):
        super().__init__()
        self.is_pre = layer.config.norm_position == "pre"
        self.hidden_act = layer.config.hidden_act
        self.low_rank = feed_forward_low_rank(layer, tf.float32)
        self.is_fused = layer.gate is None and not self.low_rank
        self.lowest = LOWEST[self.hidden_act] if self.is_fused else None
        self.intermediate = QuantizedDense(*arrays(layer.intermediate), vnni)
        self.gate = None if layer.gate is None else QuantizedDense(*arrays(layer.gate), vnni)
        self.output = QuantizedDense(*arrays(layer.output_dense), vnni, self.lowest)
        self.layer_norm = norm(layer.layer_norm)
        self.ranges = ranges

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        first, second = tf.unstack(tf.constant(self.ranges)[step])
        inputs = self.layer_norm(hidden) if self.is_pre else hidden
        if self.is_fused:
            middle, largest = self._inside(quantize(inputs, first), first, second)
            residual = hidden
        else:
            inside, largest = self._float_inside(inputs, first, step), second
            middle, residual = quantize(inside, second), self.low_rank.get("output", inside, step, hidden)
        total = self.output(middle, largest, tf.float32, residual=residual)
        return total if self.is_pre else self.layer_norm(total)

    def _inside(self, inputs: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """quint8 [tokens, units], and how much of the numbers' range the largest stands for."""
        function, bounds = onednn.FUSED_ACTIVATIONS[self.hidden_act], (tf.constant(self.lowest), second)
        middle = self.intermediate(inputs, first, tf.quint8, function=function, output_range=bounds)
        return middle, second - self.lowest

    def _float_inside(self, inputs: tf.Tensor, first: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        """The same in float32, not yet rounded."""
        rounded = quantize(inputs, first)
        added = self.low_rank.get("intermediate", inputs, step)
        inside = activation(self.hidden_act)(self.intermediate(rounded, first, tf.float32, residual=added))
        if self.gate is None:
            return inside
        return inside * self.gate(rounded, first, tf.float32, residual=self.low_rank.get("gate", inputs, step))


def largest_pairs(kernel: np.ndarray) -> np.ndarray:
    """Finds the largest sum of neighbouring weights of one sign (or weight alone) of [inputs, units], for each unit."""
    pairs = np.pad(kernel, ((0, len(kernel) % 2), (0, 0))).reshape(-1, 2, kernel.shape[1])
    return np.maximum(np.maximum(pairs, 0).sum(axis=1), np.maximum(-pairs, 0).sum(axis=1)).max(axis=0)


def quantize(values: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """Rounds to quint8, 255 standing for `largest`, 128 for 0 and 1 for -`largest`; what is beyond is clipped.

    Unsigned, since oneDNN has to shift signed numbers itself, each time: without VNNI that makes its products two to
    four times as slow (32 tokens, 768 x 3072: 1.5 and not 0.8 ms, 768 x 768: 0.8 and 0.2).
    """
    return tf.raw_ops.QuantizeV2(
        input=tf.cast(values, tf.float32),
        min_range=-(128 / 127) * largest,
        max_range=largest,
        T=tf.quint8,
        mode="MIN_FIRST",
    ).output


def check_int8(hidden_act: str, feed_forward: str = "mlp") -> None:
    """Raises UserError where a model cannot be of int8 for its activation function; any can stand before a gate."""
    if hidden_act not in LOWEST and feed_forward == "mlp":
        raise UserError(f"int8 knows the hidden_act {', '.join(LOWEST)}; this model has '{hidden_act}'")


def check_kernels() -> None:
    """Raises UserError where TensorFlow has not oneDNN's 8-bit kernels."""
    probe = QuantizedDense(np.eye(8, dtype=np.float32), np.zeros(8, np.float32))
    onednn.require("int8", lambda: probe(quantize(tf.eye(8), tf.constant(1.0)), tf.constant(1.0), tf.float32))


_ACTIVATIONS = {fused: name for name, fused in onednn.FUSED_ACTIVATIONS.items()}


class ExactDense:
    """A QuantizedDense in float32, which holds sums of its products exactly up to 2**24."""

    def __init__(self, layer: QuantizedDense):
        self.layer = layer

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> tf.Tensor:
        """As QuantizedDense."""
        bias, largest = self.layer.of_inputs(largest)
        numbers, kernel = (tf.cast(part, tf.float32) for part in (tf.bitcast(inputs, tf.uint8), self.layer.kernel))
        found = tf.matmul(numbers, kernel) * (largest / 255 * self.layer.range / 127) + bias
        if function is not None:
            found = activation(_ACTIVATIONS[function])(found)
        if residual is not None:
            found += residual
        if dtype != tf.quint8:
            return tf.cast(found, dtype)
        low, high = output_range
        found = tf.round(tf.clip_by_value((found - low) * (255 / (high - low)), 0, 255))
        return tf.bitcast(tf.cast(found, tf.uint8), tf.quint8)


def exact_products(encoder) -> contextlib.AbstractContextManager:
    """Gives a context in which what is traced of an 8-bit InferenceEncoder has ExactDense for its products."""
    halves = [encoder.embeddings.projection, *encoder.attentions, *encoder.feed_forwards]
    return replaced([half for half in halves if half is not None], QuantizedDense, ExactDense)
