"""Dense layers, norms, embeddings and activation functions of exports, over [tokens, units]."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.base.layers import activation
from serving.inference import onednn


class ExportedDense(tf.Module):
    """A dense layer with kernel [inputs, units] and bias [units] in `dtype`; bfloat16 needs oneDNN.

    With `weights_first` the kernel is [units, inputs], which is faster for short rows in float32 without AVX-512. Then,
    with `reads_transposed`, inputs are [inputs, tokens]; with `returns_transposed` results are [units, tokens].
    """

    def __init__(
        self,
        kernel: np.ndarray,
        bias: np.ndarray,
        dtype: tf.DType,
        hidden_act: str | None = None,
        weights_first: bool = False,
        reads_transposed: bool = False,
        returns_transposed: bool = False,
    ):
        super().__init__()
        self.dtype, self.hidden_act, self.weights_first = dtype, hidden_act, weights_first
        self.reads_transposed, self.returns_transposed = reads_transposed, weights_first and returns_transposed
        self.kernel = variable(kernel.T if weights_first else kernel, dtype, "kernel")
        self.bias = variable(bias, dtype, "bias")

    def __call__(self, inputs: Tensor, residual: Tensor | None = None) -> Tensor:
        """Returns [tokens, units] from [tokens, inputs] of any float type.

        The result has the layer's dtype, or `residual`'s.
        """
        if residual is not None and residual.dtype != self.dtype:
            return residual + tf.cast(self(inputs), residual.dtype)
        inputs, kernel, bias = tf.cast(inputs, self.dtype), self.kernel.value(), self.bias.value()
        fused = self.dtype == tf.bfloat16 and onednn.FUSED_ACTIVATIONS.get(self.hidden_act)
        if self.dtype == tf.bfloat16 and (fused or self.hidden_act is None):
            return onednn.matmul(inputs, kernel, bias, fused, residual)
        if self.weights_first:
            product = tf.matmul(kernel, inputs, transpose_b=not self.reads_transposed)
            product = product if self.returns_transposed else tf.transpose(product)
        else:
            product = tf.matmul(inputs, kernel)
        product = product + bias[:, tf.newaxis] if self.returns_transposed else tf.nn.bias_add(product, bias)
        if self.hidden_act is not None:
            product = act(self.hidden_act, product)
        return product if residual is None else residual + product


def act(hidden_act: str, inputs: Tensor) -> Tensor:
    """Computes an activation function; gelu by (1 + tanh(u)) / 2 = sigmoid(2 u), which has fewer ops."""
    if hidden_act != "gelu":
        return activation(hidden_act)(inputs)
    scale = 2 * (2 / np.pi) ** 0.5
    return inputs * tf.sigmoid(inputs * (scale + (0.044715 * scale) * tf.square(inputs)))


class ExportedNorm:
    """A layer norm or RMS norm over the last axis, computed in float32.

    A token's bits must not depend on other tokens: rounding to 8 bits or bfloat16 amplifies any difference. So it
    avoids rsqrt, whose vector and scalar instructions round differently.
    """

    def __init__(self, layer, dtype: tf.DType = tf.float32):
        self.dtype, self.epsilon = dtype, layer.epsilon
        self.is_rms = isinstance(layer, keras.layers.RMSNormalization)
        self.gamma, beta = array(layer.scale if self.is_rms else layer.gamma), getattr(layer, "beta", None)
        self.beta = None if beta is None else array(beta)

    def __call__(self, inputs: Tensor) -> Tensor:
        values = tf.cast(inputs, tf.float32)
        if not self.is_rms:
            values -= tf.reduce_mean(values, axis=-1, keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(tf.square(values), axis=-1, keepdims=True) + self.epsilon)
        # Of a plain 1 / sqrt grappler makes an rsqrt.
        values *= tf.math.divide_no_nan(1.0, deviation) * self.gamma
        return tf.cast(values if self.beta is None else values + self.beta, self.dtype)


def norm(layer, dtype: tf.DType = tf.float32) -> Callable[[Tensor], Tensor]:
    """Returns the export's version of a Keras normalization layer, or of none (Identity)."""
    if isinstance(layer, keras.layers.Identity):
        return lambda inputs: tf.cast(inputs, dtype)
    return ExportedNorm(layer, dtype)


class ExportedEmbeddings(tf.Module):
    """Computes embeddings [tokens, hidden_size]: in `dtype` if a projection comes last, else float32."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.word_only = layer.config.factorization == "word"
        self.words = variable(layer.word_embeddings, tf.float32, "word_embeddings")
        self.projection = None if layer.projection is None else dense(layer.projection, dtype)
        types = layer.token_type_embeddings
        self.segments = None if types is None else variable(types, tf.float32, "token_type_embeddings")
        table, offset = layer.position_embeddings, layer.config.position_offset
        # Unused rows are left out.
        self.positions = None if table is None else variable(array(table)[offset:], tf.float32, "position_embeddings")
        self.one_segment = layer.config.type_vocab_size == 1
        self.layer_norm = None if layer.layer_norm is None else ExportedNorm(layer.layer_norm)

    def __call__(self, input_ids: Tensor, segment_ids: Tensor | None, cells: Tensor | None) -> Tensor:
        """Embeds the tokens of int32 [batch, length] at the flat indices `cells`, int32 [tokens]; of None: all."""

        def computed(values: Tensor) -> Tensor:
            flat = tf.reshape(values, [-1])
            return flat if cells is None else tf.gather(flat, cells)

        if cells is None:
            # In LiteRT a range whose size is computed leaves all that follows without a size.
            positions = computed(tf.cumsum(tf.ones_like(input_ids), axis=1, exclusive=True))
        else:
            positions = cells % tf.shape(input_ids)[1]
        input_ids = computed(input_ids)
        words = tf.gather(self.words, input_ids)
        if self.word_only:
            words = tf.cast(self._project(words), tf.float32)
        if self.positions is not None:
            words += tf.gather(self.positions, positions)
        if self.segments is not None:
            ids = None if self.one_segment else segment_ids
            segments = tf.zeros([1], tf.int32) if ids is None else computed(ids)
            words += tf.gather(self.segments, segments)
        normalised = words if self.layer_norm is None else self.layer_norm(words)
        return normalised if self.word_only else self._project(normalised)

    def _project(self, vectors: Tensor) -> Tensor:
        return vectors if self.projection is None else self.projection(vectors)


def dense(layer: keras.layers.Dense, dtype: tf.DType, hidden_act: str | None = None) -> ExportedDense:
    """Returns the export's version of a Keras dense layer."""
    return ExportedDense(*arrays(layer), dtype, hidden_act)


def arrays(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray]:
    """Returns the float32 kernel [inputs, units] and bias [units], zeros if the layer has none."""
    kernel = array(layer.kernel)
    return kernel, np.zeros(kernel.shape[1], np.float32) if layer.bias is None else array(layer.bias)


def array(value) -> np.ndarray:
    """Returns a tensor's or variable's values as a float32 array."""
    with tf.init_scope():  # also while a graph is being built
        return keras.ops.convert_to_numpy(value).astype(np.float32)


def variable(value, dtype: tf.DType, name: str) -> tf.Variable:
    """Returns an untrainable variable of `dtype`."""
    return tf.Variable(tf.cast(array(value), dtype), trainable=False, name=name)
