"""The layers that hold the encoder's weights."""

from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.extensions import ExtensionOwner
from albert_tf.base.layers import Dense, LayerNorm, RMSNorm, dropout, plain, rows_at
from albert_tf.base.model import put
from albert_tf.config import AlbertConfig
from albert_tf.config.registry import Weights
from tfrecords.base.errors import UserError


def initializer(config: AlbertConfig, scale: float = 1.0) -> keras.initializers.Initializer:
    """Returns ALBERT's initializer, a truncated normal (google-research/albert modeling.py), times `scale`."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range * scale)


def dense(config: AlbertConfig, units: int, scale: float = 1.0, **kwargs: Any) -> keras.layers.Dense:
    """Makes a Dense layer whose initial kernel is ALBERT's times `scale`."""
    return Dense(units, kernel_initializer=initializer(config, scale), **kwargs)


def residual_scale(config: AlbertConfig) -> float:
    """Returns a factor for the initial kernels of layers that add to the residual stream (GPT-2 paper, section 2.3)."""
    # With pre-norm nothing normalizes the sum of the 2 * num_steps results.
    return (2 * config.num_steps) ** -0.5 if config.norm_position == "pre" else 1.0


def norm(config: AlbertConfig, **kwargs: Any) -> LayerNorm | RMSNorm:
    """Makes the configured LayerNorm or RMSNorm."""
    if config.norm == "rms_norm":
        return RMSNorm(epsilon=config.layer_norm_eps, **kwargs)
    return LayerNorm(config.layer_norm_eps, config.use_bias, **kwargs)


def product_sizes(config: AlbertConfig, kind: str) -> dict[str, tuple[int, int]]:
    """Returns (inputs, units) of the dense layers in a block's attention or feed-forward half, by layer name."""
    hidden, inside = config.hidden_size, config.intermediate_size
    if kind == "attention":
        return dict.fromkeys(("query", "key", "value", "output"), (hidden, hidden))
    gate = {"gate": (hidden, inside)} if config.feed_forward == "glu" else {}
    return {"intermediate": (hidden, inside)} | gate | {"output": (inside, hidden)}


def has_bias(config: AlbertConfig, kind: str, name: str) -> bool:
    """Returns whether a dense layer in a block's attention or feed-forward half has a bias."""
    if kind == "attention":
        return config.use_bias and config.spec.attention_bias and config.without_bias != "dense"
    return config.use_bias and config.without_bias not in (("dense",) if name == "output" else ("dense", "inner"))


class Half(keras.layers.Layer, ExtensionOwner):
    """Holds the weights of one half of a block, "attention" or "feed_forward"; it computes nothing."""

    def __init__(self, config: AlbertConfig, kind: str, steps: tuple[int, ...] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.steps, own = config, tuple(steps), {"dtype": self.dtype_policy}
        is_attention, self.gate, sizes = kind == "attention", None, product_sizes(config, kind)
        if not is_attention:
            self.add_extension_layers(config, kind, self.steps)
        self.names, self.widths = tuple(sizes), tuple(width for width, _ in sizes.values())
        for name, (_, units) in sizes.items():
            scale = residual_scale(config) if name == "output" else 1.0
            layer = dense(config, units, scale, use_bias=has_bias(config, kind, name), name=name, **own)
            setattr(self, "output_dense" if name == "output" else name, layer)
        self.layer_norm: Any = norm(config, name="layer_norm", **own)
        if is_attention and not config.first_norm and self.steps == (0,):
            self.layer_norm = keras.layers.Identity(name="layer_norm", **own)
        if is_attention:
            self.add_extension_layers(config, kind, self.steps)
            put(self, "projections/dense", self.query)
            put(self, "projections/dense_2", self.value)
        self.name_on_disk()

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return  # Another block has the half, too.
        for name, width in zip(self.names, self.widths):
            self.product(name).build((None, width))
        self.layer_norm.build((None, self.config.hidden_size))
        self.build_extension_layers(self.config)

    def product(self, name: str) -> keras.layers.Dense:
        return self.output_dense if name == "output" else getattr(self, name)


class TransformerBlock(keras.layers.Layer):
    """Holds an attention and a feed-forward half, which other blocks may share."""

    def __init__(self, attention: Half, feed_forward: Half, **kwargs: Any):
        super().__init__(**kwargs)
        self.attention, self.feed_forward = attention, feed_forward

    def build(self, input_shape: Any = None) -> None:
        self.attention.build()
        self.feed_forward.build()


def collect(config: AlbertConfig, owners: dict[tuple[str, int], Any]) -> dict[str, Weights]:
    """Returns the extensions' weights by extension name."""
    steps = {key: owner.steps for key, owner in owners.items() if isinstance(owner, Half)}
    return {
        one.name: Weights({key: owner.weights_of(one.name) for key, owner in owners.items()}, steps)
        for one in config.extensions
    }


class Embeddings(keras.layers.Layer, ExtensionOwner):
    """Looks up words, positions and segments; sums, normalizes and projects them (modeling.py:480-628, 1083-1088)."""

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.word_only, own = config, config.factorization == "word", {"dtype": self.dtype_policy}
        self.width = config.hidden_size if self.word_only else config.embedding_size
        self.layer_norm = self.projection = self.position_embeddings = self.token_type_embeddings = None
        if config.spec.has_norm:
            self.layer_norm = norm(config, name="layer_norm", **own)
        if config.is_projected:
            use_bias = config.use_bias and not self.word_only
            self.projection = dense(config, config.hidden_size, use_bias=use_bias, name="projection", **own)
        self.add_extension_layers(config, "embeddings")
        self.name_on_disk()

    def build(self, input_shape: Any = None) -> None:
        config, spec = self.config, self.config.spec
        tables = [("word_embeddings", config.vocab_size, config.embedding_size)]
        if spec.has_types:
            tables.append(("token_type_embeddings", config.type_vocab_size, self.width))
        if spec.has_positions:
            tables.append(("position_embeddings", config.max_position_embeddings, self.width))
        for name, rows, width in tables:
            # Not autocast: rows are cast after the lookup, not the table before it.
            table = self.add_weight(name=name, shape=(rows, width), initializer=initializer(config), autocast=False)
            setattr(self, name, table)
        self.build_extension_layers(config)
        if self.layer_norm is not None:
            self.layer_norm.build((None, self.width))
        if self.projection is not None:
            self.projection.build((None, config.embedding_size))

    def compute_output_shape(self, input_shape: Any = None) -> tuple[tuple, tuple]:
        return (None, None, self.width), (None, None, self.config.hidden_size)

    def call(
        self,
        input_ids: Tensor,
        segment_ids: Tensor = None,
        position_ids: Tensor = None,
        seed: Tensor = None,
        rows: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Embeds int32 ids [batch, sequence]; raises errors as `rows_at` does.

        Returns:
            The normalized sum [batch, sequence, embedding_size] (hidden_size with `factorization` "word"), and the
            first block's input [batch, sequence, hidden_size].
        """
        words = ops.cast(rows_at(self.word_embeddings, input_ids, "input_ids"), self.compute_dtype)
        words = words if rows is None else rows.words(words)
        if self.word_only and self.projection is not None:
            words = self.projection(words)
        others = []
        if self.token_type_embeddings is not None:
            # RoBERTa has one type; rows may still mark their second text.
            if segment_ids is None or self.config.type_vocab_size == 1:
                segment_ids = ops.zeros_like(input_ids)
            others.append(rows_at(self.token_type_embeddings, segment_ids, "segment_ids"))
        if self.position_embeddings is not None:
            others.append(self._positions(ops.shape(input_ids)[1], position_ids))
        if others:
            words = words + ops.cast(sum(others[1:], others[0]), words.dtype)
        normalized = words if self.layer_norm is None else self.layer_norm(words)
        dropped = dropout(normalized, self.config.hidden_dropout_prob, seed)
        if self.word_only or self.projection is None:
            return normalized, dropped
        return normalized, self.projection(dropped)

    def _positions(self, length: Any, position_ids: Tensor) -> Tensor:
        offset = self.config.position_offset
        if position_ids is not None:
            return rows_at(self.position_embeddings, position_ids, "position_ids", first=offset)
        check_length(length, self.config)
        return self.position_embeddings[offset : offset + length]


def check_length(length: Any, config: AlbertConfig) -> None:
    """Raises UserError if `length` is an int above the number of positions."""
    if isinstance(length, int) and length > config.max_seq_length:
        limit, offset = config.max_position_embeddings, config.position_offset
        less = f" - {offset}" if offset else ""
        raise plain(UserError(f"a sequence of {length} tokens is over max_position_embeddings {limit}{less}; cut it"))
