"""Encoder kernels whose matrix products oneDNN computes in 8 bits.

Weights have a scale per output channel; activations have a fixed scale per step and product, so rows do not influence
each other.

Without VNNI (measured from SSE4.1 to AVX-512), oneDNN adds the products of unsigned activations 2i and 2i + 1 in 16
bits, with saturation. So weights 2i and 2i + 1 of equal sign are scaled until their sum is at most 128: 255 * 128 fits.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.base.layers import activation
from albert_tf.config import AlbertConfig
from albert_tf.layers.block import Step
from albert_tf.layers.depth import DepthLoop
from serving.inference import onednn
from serving.inference.kernels import RECORDED, AttentionHalf, FeedForwardHalf, FloatKernels, Recorder, largest_of
from serving.inference.layers import ExportedDense
from serving.inference.rows import FlatBatch
from tfrecords.base.errors import UserError

# The smallest value of each activation function that oneDNN's products fuse.
LOWEST = {"gelu": -0.171, "gelu_erf": -0.171, "relu": 0.0}


class QuantizedDense(tf.Module):
    """A dense layer with kernel int8 [inputs, units] and scales float32 [units].

    `lowest` is the number that an input of 0 represents; None if 128 represents 0.0.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, lowest: float | None = None):
        super().__init__()
        self.range = np.maximum(largest_pairs(kernel), 1e-12)
        rounded = np.round(kernel * (127 / self.range))
        self.kernel = tf.Variable(rounded.astype(np.int8), trainable=False, name="kernel")
        self.sums = (rounded * (self.range / 127)).sum(axis=0).astype(np.float32)
        self.is_shifted = lowest is None
        self.bias = bias if lowest is None else bias + lowest * self.sums

    def __call__(self, inputs, largest, dtype, *, residual=None, function=None, output_range=None) -> Tensor:
        """Multiplies quint8 [tokens, inputs], where 255 represents `largest`, plus `lowest` if that is given.

        A result of tf.quint8 needs `output_range`: the numbers that its 0 and 255 represent.
        """
        bias, largest = self.of_inputs(largest)
        bounds = [-largest, largest, tf.constant(-self.range), tf.constant(self.range), *(output_range or ())]
        kernel, is_const = tf.bitcast(self.kernel, tf.qint8), not self.is_shifted
        return onednn.quantized_matmul(inputs, kernel, bias, bounds, dtype, function, residual, is_const)

    def of_inputs(self, largest: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the bias and the `largest` of a product in which the input n represents n / 255 * `largest`."""
        if not self.is_shifted:
            return tf.constant(self.bias), largest
        return self.bias - (128 / 127) * largest * self.sums, (255 / 127) * largest


class QuantizedProjection(tf.Module):
    """The embeddings' projection as an 8-bit product; `largest` is its largest absolute input."""

    def __init__(self, layer: ExportedDense, largest: float):
        super().__init__()
        self.dense, self.largest = QuantizedDense(layer.kernel.numpy(), layer.bias.numpy()), largest

    def __call__(self, inputs: Tensor) -> Tensor:
        largest = tf.constant(self.largest, tf.float32)
        return self.dense(quantize(inputs, largest), largest, tf.float32)


class Int8Kernels(FloatKernels):
    """Kernels with 8-bit products; attention, norms and low-rank products stay float32.

    Results of the activation function become unsigned 8-bit numbers, signed ones beside a gate or a low-rank product.
    """

    # What "intermediate" has read, and the gate after it reads.
    _rounded: tuple[Tensor, Tensor]

    def multiply(self, first: Tensor, second: Tensor, transpose_b: bool = False) -> Tensor:
        return onednn.batch_matmul(first, second, transpose_b=transpose_b)

    def query_key_value(self, step: Step, inputs: Tensor, attended: Tensor) -> Tensor:
        part = self.half("attention", step)
        added = part.low_rank.get("query_key_value", attended, step)
        return part.query_key_value(*self._round(part, 0, step, attended), tf.float32, residual=added)

    def dense(self, name: str, step: Step, inputs: Tensor) -> Tensor:
        """Computes a feed-forward product: quint8 if it includes the activation function, else float32."""
        part, hidden_act = self.half("feed_forward", step), self.config.hidden_act
        if not is_unsigned(part):
            if name == "intermediate":
                self._rounded = self._round(part, 0, step, inputs)
            added = part.low_rank.get(name, inputs, step)
            product = getattr(part, name)(*self._rounded, tf.float32, residual=added)
            return activation(hidden_act)(product) if name == "intermediate" else product
        function, largest = onednn.FUSED_ACTIVATIONS[hidden_act], of_step(part.ranges[:, 0], step)
        bounds = tf.constant(LOWEST[hidden_act]), of_step(part.ranges[:, 1], step)
        rounded = quantize(inputs, largest)
        return part.intermediate(rounded, largest, tf.quint8, function=function, output_range=bounds)

    def add_to_residual(self, half: str, step: Step, inside: Tensor, residual: Tensor) -> Tensor:
        part = self.half(half, step)
        if half == "feed_forward" and is_unsigned(part):
            # The part of the numbers' range that the largest uses.
            largest = of_step(part.ranges[:, 1] - np.float32(LOWEST[self.config.hidden_act]), step)
            total = part.output(inside, largest, tf.float32, residual=residual)
        else:
            residual = part.low_rank.get("output", inside, step, residual)
            total = part.output(*self._round(part, 1, step, inside), tf.float32, residual=residual)
        return total if self.is_pre else part.layer_norm(total)

    def _round(self, part: Any, place: int, step: Step, inputs: Tensor) -> tuple[Tensor, Tensor]:
        largest = of_step(part.ranges[:, place], step)
        return quantize(inputs, largest), largest


def is_unsigned(half: FeedForwardHalf) -> bool:
    """Returns whether a feed-forward half's first product includes the activation function."""
    return half.gate is None and half.is_fused


def of_step(values: np.ndarray, step: Step) -> Any:
    """Returns a step's element of float32 [steps]: a tensor within a loop, else a number."""
    number = step.number
    return values[number] if isinstance(number, int) else tf.gather(values, number)


def quantize_half(half: AttentionHalf | FeedForwardHalf, ranges: np.ndarray, hidden_act: str) -> None:
    """Replaces a half's float32 products by 8-bit ones.

    `ranges`, float32 [steps, 2], are the largest inputs of the half's first and last product.
    """
    for name, layer in [(name, layer) for name, layer in vars(half).items() if isinstance(layer, ExportedDense)]:
        is_last = name == "output" and isinstance(half, FeedForwardHalf)
        lowest = LOWEST[hidden_act] if is_last and is_unsigned(half) else None
        setattr(half, name, QuantizedDense(layer.kernel.numpy(), layer.bias.numpy(), lowest))
    half.ranges = ranges


def largest_pairs(kernel: np.ndarray) -> np.ndarray:
    """Returns, for each unit of [inputs, units], the largest sum of weights 2i and 2i + 1 that have one sign."""
    pairs = np.pad(kernel, ((0, len(kernel) % 2), (0, 0))).reshape(-1, 2, kernel.shape[1])
    return np.maximum(np.maximum(pairs, 0).sum(axis=1), np.maximum(-pairs, 0).sum(axis=1)).max(axis=0)


def quantize(values: Tensor, largest: Tensor) -> Tensor:
    """Rounds to quint8: 255 represents `largest`, 128 is 0 and 1 is -`largest`; values beyond are clipped."""
    return tf.raw_ops.QuantizeV2(
        input=tf.cast(values, tf.float32),
        min_range=-(128 / 127) * largest,
        max_range=largest,
        T=tf.quint8,
        mode="MIN_FIRST",
    ).output


def check_int8(hidden_act: str, feed_forward: str = "mlp") -> None:
    """Raises UserError if int8 does not support the activation function."""
    if hidden_act not in LOWEST and feed_forward == "mlp":
        raise UserError(f"int8 knows the hidden_act {', '.join(LOWEST)}; this model has '{hidden_act}'")


# Random rows x tokens, where nothing better is given, and how much larger the ranges are made then.
_RANDOM_SHAPE, _RANDOM_MARGIN = (16, 64), 1.1


def quantize_encoder(encoder: Any, calibration: tuple | None) -> Int8Kernels:
    """Quantizes the matrix products of a float32 encoder in place; returns kernels that use them.

    This includes the embeddings' projection, whose float32 result depends on the number of tokens without AVX-512.
    """
    config, embeddings = encoder.config, encoder.embeddings
    check_int8(config.hidden_act, config.feed_forward)
    margin = 1.0 if calibration is not None else _RANDOM_MARGIN
    ids, lengths = _random_rows(config, encoder.settings.longest) if calibration is None else calibration
    ids = tf.constant(ids, tf.int32)
    batch = FlatBatch(tf.sequence_mask(lengths, ids.shape[1]), config)
    count, projection, largest = tf.size(batch.cells), embeddings.projection, list[float]()

    def noted(inputs: Tensor) -> Tensor:
        largest.append(largest_of(inputs[:count]))
        return projection(inputs)

    embeddings.projection = projection and noted
    hidden = embeddings(ids, None, batch.computed)
    embeddings.projection = projection and QuantizedProjection(projection, largest[0] * margin)
    recorder = Recorder(encoder.kernels, count)
    runner = encoder.runner(encoder.rows(batch, {}, recorder), recorder)
    # Every step that there may be, one by one.
    DepthLoop()(runner, runner.begin(hidden))
    ranges = margin * np.array(
        [[recorder.largest.get((step, name), 0) for name in RECORDED] for step in range(config.num_steps)], np.float32
    )
    for halves, columns in ((encoder.attentions, ranges[:, :2]), (encoder.feed_forwards, ranges[:, 2:])):
        for half in halves:
            quantize_half(half, columns, config.hidden_act)
    return Int8Kernels(config, encoder.attentions, encoder.feed_forwards)


def _random_rows(config: AlbertConfig, longest: int) -> tuple[np.ndarray, np.ndarray]:
    rows, length = _RANDOM_SHAPE
    length = min(length, longest)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (rows, length))
    return ids, np.full(rows, length, np.int32)
