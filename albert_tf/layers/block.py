"""One depth step: self-attention, then the feed-forward network. Blocks may have either half in common."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor, fused_attention
from albert_tf.layers.dense import activation, dense, norm, residual_scale
from albert_tf.layers.depth_lora import adapted, make_adapters
from albert_tf.layers.dropout import dropout, site_seed
from albert_tf.layers.local_attention import attend_by_parts, attend_nearby

# Added to the score of a pair that must not attend (modeling.py:824-830); a float16 holds it.
MASKED_SCORE = -10000.0
# The dense layers of self-attention.
PROJECTIONS = ("query", "key", "value", "output")
# Between the dropouts of the parts of a long row: beyond those of all steps, and of the depth that is drawn.
_PART_SITE = 1 << 22
# Of XLNet's third dropout of a step, short of the depth that is drawn.
_INSIDE_SITE = 1 << 17


def attention_bias(input_mask: Tensor, sequence_ids: Tensor, dtype: str) -> Tensor:
    """Makes what is added to every attention score: 0 where a token attends to another, MASKED_SCORE elsewhere.

    Args:
        input_mask: int32 [batch, sequence], 0 for padding; or None.
        sequence_ids: int32 [batch, sequence], the number of the packed sequence a token belongs to; or None.
        dtype: dtype of the result.

    Returns:
        [batch, 1, 1, sequence], or [batch, 1, sequence, sequence] for packed rows, or None where all may attend.
    """
    allowed = None
    if input_mask is not None:
        allowed = ops.cast(input_mask, "bool")[:, None, None, :]
    if sequence_ids is not None:
        same = ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :])
        allowed = same if allowed is None else ops.logical_and(same, allowed)
    if allowed is None:
        return None
    return ops.cast(ops.logical_not(allowed), dtype) * ops.cast(MASKED_SCORE, dtype)


def _softmax(scores: Tensor) -> Tensor:
    return ops.cast(ops.softmax(ops.cast(scores, "float32"), axis=-1), scores.dtype)


class SelfAttention(keras.layers.Layer):
    """Computes layer_norm(hidden + output(attend(query, key, value))): post-norm, as modeling.py:934-980.

    With norm_position "pre" it is hidden + output(attend(...)) of layer_norm(hidden). query, key, value and output are
    Dense layers with kernels [hidden_size, hidden_size].

    Args:
        config: of the encoder.
        steps: numbers of the plan's steps that it runs at.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    has_bias = True

    def __init__(self, config: AlbertConfig, steps: Sequence[int] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.head_size = config, config.head_size
        scales = (1.0, 1.0, 1.0, residual_scale(config))
        use_bias = config.use_bias and self.has_bias
        self.query, self.key, self.value, self.output_dense = (
            dense(config, config.hidden_size, scale, use_bias=use_bias, dtype=self.dtype_policy, name=name)
            for name, scale in zip(PROJECTIONS, scales)
        )
        self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")
        shapes = dict.fromkeys(PROJECTIONS, (config.hidden_size, config.hidden_size))
        self.adapters = make_adapters(config, "attention", shapes, steps, self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        for layer in (self.query, self.key, self.value, self.output_dense, self.layer_norm, *self.adapters.values()):
            layer.build((None, self.config.hidden_size))

    @property
    def projections(self) -> dict[str, keras.layers.Dense]:
        """Gives the dense layers by the names in PROJECTIONS."""
        return dict(zip(PROJECTIONS, (self.query, self.key, self.value, self.output_dense)))

    def call(
        self,
        hidden: Tensor,
        bias: Tensor,
        length: Tensor,
        seed: Tensor = None,
        step: Tensor = 0,
        places: Any = None,
        is_local: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Lets every token attend to its row.

        Args:
            hidden: [batch * sequence, hidden_size].
            bias: what `attention_bias` gives.
            length: tokens a row, the sequence axis of the batch.
            seed: uint32 [2] that the dropout masks follow from; None outside training.
            step: which of the plan's steps this is; weights that differ from step to step are indexed by it.
            places: of the batch, where positions are not absolute: what turns queries and keys.
            is_local: whether to the tokens nearby alone, of a configuration that has an attention_window.

        Returns:
            The new hidden, same shape, and the attention probabilities [batch, heads, sequence, sequence]; () where
            there is an attention_window, and within `fused_attention`.
        """
        config = self.config
        inputs = self.layer_norm(hidden) if config.norm_position == "pre" else hidden
        query, key = (self._heads(self._project(name, inputs, step), length, places) for name in PROJECTIONS[:2])
        value = self._heads(self._project("value", inputs, step), length)
        probabilities: Tensor = ()  # keras.remat passes on no None
        if config.attention_window:
            context = self._attend_far(query, key, value, bias, seed, is_local)
        else:
            context, probabilities = self._attend(query, key, value, bias, seed)
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (-1, config.hidden_size))
        context = dropout(self._project("output", context, step), config.hidden_dropout_prob, site_seed(seed, 1))
        if config.norm_position == "pre":
            return hidden + context, probabilities
        return self.layer_norm(hidden, context), probabilities

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """The contexts, [batch, heads, sequence, head_size], and the probabilities."""
        if fused_attention.is_on(query.shape[2]):
            return fused_attention.attend(query, key, value, bias, self.head_size**-0.5), ()
        scores = self._score(query, key)
        if bias is not None:
            scores = scores + bias
        probabilities = _softmax(scores)
        dropped = dropout(probabilities, self.config.attention_probs_dropout_prob, site_seed(seed, 0))
        return ops.matmul(dropped, value), probabilities

    def _attend_far(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor, is_local: bool
    ) -> Tensor:
        """The contexts of rows that may be long."""

        def weigh(scores: Tensor, part: Tensor) -> Tensor:
            seed_of_part = site_seed(seed, _PART_SITE * (part + 1))
            return dropout(_softmax(scores), self.config.attention_probs_dropout_prob, seed_of_part)

        length, window = ops.shape(query)[2], self.config.attention_window
        if is_local and not (isinstance(length, int) and length <= window + 1):
            return attend_nearby(query, key, value, bias, self._score, weigh, window, MASKED_SCORE)
        return attend_by_parts(query, key, value, bias, self._score, weigh)

    def _score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [..., queries, keys] of [..., tokens, head_size]."""
        scale, turned = self.head_size**-0.5, ops.swapaxes(key, -1, -2)
        if query.dtype == "float16":
            # Unscaled products of wide heads may pass a float16's 65504.
            return ops.matmul(query * scale, turned)
        # After the product: TensorFlow 2.21 on CPU returns empty tensors, without an error, from a while_loop around
        # matmul(query * scale, transposed key) + bias (grappler's remapper with oneDNN).
        return ops.matmul(query, turned) * scale

    def _project(self, name: str, inputs: Tensor, step: Tensor) -> Tensor:
        return adapted(self.projections[name], self.adapters.get(name), inputs, step)

    def _heads(self, flat: Tensor, length: Tensor, places: Any = None) -> Tensor:
        split = ops.reshape(flat, (-1, length, self.config.num_attention_heads, self.head_size))
        return ops.transpose(split if places is None else places(split), (0, 2, 1, 3))


class FeedForward(keras.layers.Layer):
    """Computes layer_norm(hidden + output(activation(intermediate(hidden)))): post-norm, as modeling.py:980-1015.

    With norm_position "pre" it is hidden + output(...) of layer_norm(hidden). With feed_forward "glu" what goes into
    the output layer is multiplied by gate(hidden), kernel [hidden_size, intermediate_size].

    Args:
        config: of the encoder.
        steps: numbers of the plan's steps that it runs at.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, config: AlbertConfig, steps: Sequence[int] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        own = {"use_bias": config.use_bias, "dtype": self.dtype_policy}
        inside, outside = config.intermediate_size, config.hidden_size
        shapes = {"intermediate": (outside, inside), "gate": (outside, inside), "output": (inside, outside)}
        if config.feed_forward != "glu":
            del shapes["gate"]
        self.adapters = make_adapters(config, "ffn", shapes, steps, self.dtype_policy)
        self.activation = activation(config.hidden_act)
        # What an adapter adds comes before it.
        function = None if self.adapters else self.activation
        self.intermediate = dense(config, inside, activation=function, name="intermediate", **own)
        self.gate = dense(config, inside, name="gate", **own) if config.feed_forward == "glu" else None
        self.output_dense = dense(config, outside, residual_scale(config), name="output", **own)
        self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")

    def build(self, input_shape: Any = None) -> None:
        self.intermediate.build((None, self.config.hidden_size))
        if self.gate is not None:
            self.gate.build((None, self.config.hidden_size))
        self.output_dense.build((None, self.config.intermediate_size))
        self.layer_norm.build((None, self.config.hidden_size))
        for adapter in self.adapters.values():
            adapter.build()

    def call(self, hidden: Tensor, seed: Tensor = None, step: Tensor = 0) -> Tensor:
        """Transforms each token by itself: [tokens, hidden_size] to the same shape."""
        is_pre = self.config.norm_position == "pre"
        inputs = self.layer_norm(hidden) if is_pre else hidden
        adapters = self.adapters
        inside = adapted(self.intermediate, adapters.get("intermediate"), inputs, step)
        if adapters:
            inside = self.activation(inside)
        if self.gate is not None:
            inside = inside * adapted(self.gate, adapters.get("gate"), inputs, step)
        if self.config.position_type == "relative":
            # XLNet's alone (zihangdai/xlnet modeling.py, positionwise_ffn).
            inside = dropout(inside, self.config.hidden_dropout_prob, site_seed(seed, _INSIDE_SITE))
        transformed = adapted(self.output_dense, adapters.get("output"), inside, step)
        transformed = dropout(transformed, self.config.hidden_dropout_prob, site_seed(seed, 2))
        return hidden + transformed if is_pre else self.layer_norm(hidden, transformed)


class TransformerBlock(keras.layers.Layer):
    """Runs self-attention, then the feed-forward network; a half that another block has built keeps its weights."""

    def __init__(self, attention: SelfAttention, feed_forward: FeedForward, **kwargs: Any):
        super().__init__(**kwargs)
        self.attention = attention
        self.feed_forward = feed_forward

    def build(self, input_shape: Any = None) -> None:
        for half in (self.attention, self.feed_forward):
            if not half.built:
                half.build(input_shape)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    # Keras takes no tensors through **arguments.
    def call(
        self,
        hidden: Tensor,
        bias: Tensor,
        length: Tensor,
        seed: Tensor = None,
        step: Tensor = 0,
        places: Any = None,
        is_local: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Runs one depth step; arguments and results are those of `SelfAttention.call`."""
        hidden, probabilities = self.attention(
            hidden, bias=bias, length=length, seed=seed, step=step, places=places, is_local=is_local
        )
        return self.feed_forward(hidden, seed=seed, step=step), probabilities
