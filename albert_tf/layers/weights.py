"""The layers that hold the encoder's weights: embeddings, the halves of blocks, and what extensions add to them."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import Dense, LayerNorm, MeasuredMean, RMSNorm, dropout, plain, rows_at
from albert_tf.config import AlbertConfig
from albert_tf.extension import Extension, Holder, Weights
from albert_tf.layers.block import Step
from tfrecords.base.errors import UserError


def initializer(config: AlbertConfig, scale: float = 1.0) -> keras.initializers.Initializer:
    """Gives the truncated normal of modeling.py:create_initializer of google-research/albert, times `scale`."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range * scale)


def dense(config: AlbertConfig, units: int, scale: float = 1.0, **kwargs: Any) -> keras.layers.Dense:
    """Makes a Dense layer with ALBERT's initial kernel times `scale`: kernel [inputs, units], bias [units]."""
    return Dense(units, kernel_initializer=initializer(config, scale), **kwargs)


def residual_scale(config: AlbertConfig) -> float:
    """Gives the `scale` of the dense layers whose results are added to the residual stream.

    With pre-norm nothing normalises the sum of the 2 * num_steps results; each starts smaller by the root of their
    number (GPT-2: Radford et al. 2019, section 2.3), so that the stream has about the same size at any depth.
    """
    return (2 * config.num_steps) ** -0.5 if config.norm_position == "pre" else 1.0


def norm(config: AlbertConfig, **kwargs: Any) -> LayerNorm | RMSNorm:
    """Makes the normalisation that a configuration asks for."""
    if config.norm == "rms_norm":
        return RMSNorm(epsilon=config.layer_norm_eps, **kwargs)
    return LayerNorm(config.layer_norm_eps, config.use_bias, **kwargs)


class Folder(keras.layers.Layer):
    """A part of a path in a `.keras` file and nothing else: Keras names what a list or dict holds by its class."""

    is_folder = True


class Untracked:
    """Hides layers and variables from Keras, which would track them a second time."""

    def __init__(self, value: Any):
        self.value = value


def put(owner: keras.layers.Layer, path: str, layer: keras.layers.Layer) -> None:
    """Gives a layer its path in the owner's files, whatever other layers there are."""
    *folders, last = path.split("/")
    for name in folders:
        if not isinstance(getattr(owner, name, None), Folder):
            setattr(owner, name, Folder(name=name))
            getattr(owner, name).built = True
        owner = getattr(owner, name)
    setattr(owner, last, layer)


class HolderLayer(keras.layers.Layer):
    """Holds weights of an extension, each as an attribute.

    Attributes:
        extension: whose they are.
        holder: describes them.
        steps: numbers of the plan's steps that run the half that owns it.
        means: the extension's metrics. Here and not in the encoder: Keras passes over metrics of a model in a model.
    """

    def __init__(
        self, config: AlbertConfig, extension: Extension, holder: Holder, owner: str, steps: tuple, **kwargs: Any
    ):
        super().__init__(name=holder.layer, **kwargs)
        self.config, self.extension, self.holder, self.steps = config, extension, holder, tuple(steps)
        self.means = [MeasuredMean(name=name) for name in (extension.metrics() if owner == "encoder" else ())]

    def build(self, input_shape: Any = None) -> None:
        self.by_name = Untracked(_add_weights(self, self.config, self.holder))


def _add_weights(layer: keras.layers.Layer, config: AlbertConfig, holder: Holder) -> dict[str, Any]:
    added = {}
    for name, one in holder.weights.items():
        start = initializer(config) if one.initializer == "normal" else one.initializer
        own = {"autocast": one.autocast, "constraint": one.constraint, "initializer": start}
        added[name] = layer.add_weight(name=name, shape=one.shape, **own)
        setattr(layer, name, added[name])
    return added


class Owner:
    """A mixin of what may hold weights of extensions: the encoder, its embeddings, the halves of blocks."""

    dtype_policy: Any

    def hold(self, config: AlbertConfig, owner: str, steps: tuple[int, ...] = ()) -> None:
        """Makes the layers that hold weights of extensions.

        Args:
            config: of the encoder.
            owner: see `Extension.holders`.
            steps: of a half.
        """
        self._held = Untracked([])
        for extension in config.extensions:
            for holder in extension.holders(config, owner, steps):
                layer = None
                if holder.disk:
                    layer = HolderLayer(config, extension, holder, owner, steps, dtype=self.dtype_policy)
                    setattr(self, holder.attribute, layer)
                self._held.value.append((extension, holder, layer))

    def put_on_disk(self) -> None:
        """Gives these layers their paths in files."""
        for _, holder, layer in self._held.value:
            if layer is not None and holder.disk != holder.attribute:
                put(self, holder.disk, layer)

    def build_held(self, config: AlbertConfig) -> None:
        """Makes the weights."""
        self._own_weights = Untracked({})
        for extension, holder, layer in self._held.value:
            if layer is not None and not layer.built:
                layer.build(None)
            own = _add_weights(self, config, holder) if layer is None else layer.by_name.value
            prefix = "" if layer is None or isinstance(self, keras.Model) else f"{holder.layer}/"
            of_extension = self._own_weights.value.setdefault(extension.name, {})
            of_extension |= {prefix + name: weight for name, weight in own.items()}

    def held_layers(self) -> list[HolderLayer]:
        """Returns the layers that hold weights of extensions."""
        return [layer for _, _, layer in self._held.value if layer is not None]

    def held(self) -> list[tuple[Extension, Holder, dict[str, Any]]]:
        """Returns every extension that has weights here, with what describes them and the weights by name."""
        return [
            (extension, holder, {name: getattr(layer or self, name) for name in holder.weights})
            for extension, holder, layer in self._held.value
        ]

    def weights_of(self, extension: str) -> dict[str, Any]:
        """Returns the weights of an extension, by their names."""
        return self._own_weights.value.get(extension, {})


class Half(keras.layers.Layer, Owner):
    """Holds the weights of one half of a block and computes nothing: dense layers, a norm, what extensions add.

    Args:
        config: of the encoder.
        kind: "attention", with the dense layers query, key, value and output; or "feed_forward", with intermediate,
            gate where `feed_forward` is "glu", and output.
        steps: numbers of the plan's steps that run it.
        **kwargs: arguments of `keras.layers.Layer`.

    Attributes:
        branch_scale: what its result is multiplied by before it is added to the residual.
    """

    def __init__(self, config: AlbertConfig, kind: str, steps: tuple[int, ...] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.kind, self.steps = config, kind, tuple(steps)
        width, inside = config.hidden_size, config.intermediate_size
        if kind == "attention":
            sizes = dict.fromkeys(("query", "key", "value", "output"), width)
        else:
            gate = {"gate": inside} if config.feed_forward == "glu" else {}
            sizes = {"intermediate": inside} | gate | {"output": width}
            self.hold(config, kind, self.steps)
        self.names, self.gate = tuple(sizes), None
        has_bias = config.use_bias and (kind != "attention" or config.spec.attention_bias)
        for name, units in sizes.items():
            scale = residual_scale(config) if name == "output" else 1.0
            layer = dense(config, units, scale, use_bias=has_bias, dtype=self.dtype_policy, name=name)
            setattr(self, "output_dense" if name == "output" else name, layer)
        self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")
        if kind == "attention":
            self.hold(config, kind, self.steps)
            put(self, "projections/dense", self.query)
            put(self, "projections/dense_2", self.value)
        self.put_on_disk()
        self.branch_scale = math.prod(one.branch_scale(config, self.steps) for one in config.extensions)

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return  # Another block has the half, too.
        for name in self.names:
            is_last = name == "output" and self.kind == "feed_forward"
            self.product(name).build((None, self.config.intermediate_size if is_last else self.config.hidden_size))
        self.layer_norm.build((None, self.config.hidden_size))
        self.build_held(self.config)

    def product(self, name: str) -> keras.layers.Dense:
        """Returns a dense layer by its name."""
        return self.output_dense if name == "output" else getattr(self, name)


class TransformerBlock(keras.layers.Layer):
    """Holds two halves. Another block may hold one of them as well."""

    def __init__(self, attention: Half, feed_forward: Half, **kwargs: Any):
        super().__init__(**kwargs)
        self.attention, self.feed_forward = attention, feed_forward

    def build(self, input_shape: Any = None) -> None:
        self.attention.build()
        self.feed_forward.build()


def collect(config: AlbertConfig, plan: Sequence[Step], owners: dict[tuple[str, int], Owner]) -> dict[str, Weights]:
    """Returns the weights of every extension.

    Args:
        config: of the encoder.
        plan: its steps.
        owners: all of them, by kind and number.
    """
    steps = {
        (kind, i): tuple(number for number, step in enumerate(plan) if getattr(step, kind) == i)
        for kind, i in owners
        if kind in ("attention", "feed_forward")
    }
    return {
        extension.name: Weights({key: owner.weights_of(extension.name) for key, owner in owners.items()}, steps)
        for extension in config.extensions
    }


class Embeddings(keras.layers.Layer, Owner):
    """Looks up words, positions and segments; sums, normalizes and projects them (modeling.py:480-628, 1083-1088)."""

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        word_only = config.factorization == "word"
        self.width = config.hidden_size if word_only else config.embedding_size
        self.layer_norm = self.projection = self.position_embeddings = self.token_type_embeddings = None
        if config.spec.has_norm:
            self.layer_norm = norm(config, dtype=self.dtype_policy, name="layer_norm")
        if config.is_projected:
            use_bias = config.use_bias and not word_only
            self.projection = dense(
                config, config.hidden_size, use_bias=use_bias, dtype=self.dtype_policy, name="projection"
            )
        self.hold(config, "embeddings")
        self.put_on_disk()

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
        self.build_held(config)
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
        """Embeds a batch.

        Args:
            input_ids: int32 [batch, sequence].
            segment_ids: int32 [batch, sequence] (default: all 0).
            position_ids: int32 [batch, sequence], counted from 0 whatever `position_offset` is (default: 0, 1, ...).
            seed: uint32 [2] that the dropout mask follows from; None outside training.
            rows: the batch's PaddedRows, which may add to the words; None: they do not.

        Returns:
            The normalized sum [batch, sequence, embedding_size] (hidden_size where only words are factorized), and
            the encoder's input [batch, sequence, hidden_size].

        Raises:
            UserError: the sequence is longer than the positions (where its length is known when the graph is built), or
                an id is out of range: see `rows_at`.
        """
        words = ops.cast(rows_at(self.word_embeddings, input_ids, "input_ids"), self.compute_dtype)
        words = words if rows is None else rows.words(words)
        word_only = self.config.factorization == "word"
        if word_only and self.projection is not None:
            words = self.projection(words)
        if self.token_type_embeddings is not None:
            if segment_ids is None or self.config.type_vocab_size == 1:
                # RoBERTa's one type; rows say all the same where their second text begins.
                segment_ids = ops.zeros_like(input_ids)
            others = rows_at(self.token_type_embeddings, segment_ids, "segment_ids")
            if self.position_embeddings is not None:
                others = others + self._positions(ops.shape(input_ids)[1], position_ids)
            words = words + ops.cast(others, words.dtype)
        elif self.position_embeddings is not None:
            words = words + ops.cast(self._positions(ops.shape(input_ids)[1], position_ids), words.dtype)
        normalized = words if self.layer_norm is None else self.layer_norm(words)
        dropped = dropout(normalized, self.config.hidden_dropout_prob, seed)
        if word_only or self.projection is None:
            return normalized, dropped
        return normalized, self.projection(dropped)

    def _positions(self, length: Any, position_ids: Tensor) -> Tensor:
        offset = self.config.position_offset
        if position_ids is not None:
            return rows_at(self.position_embeddings, position_ids, "position_ids", first=offset)
        check_length(length, self.config)
        return self.position_embeddings[offset : offset + length]


def check_length(length: Any, config: AlbertConfig) -> None:
    """Raises UserError where a row is longer than the positions, if its length is known when the graph is built."""
    if isinstance(length, int) and length > config.max_seq_length:
        limit, offset = config.max_position_embeddings, config.position_offset
        less = f" - {offset}" if offset else ""
        raise plain(UserError(f"a sequence of {length} tokens is over max_position_embeddings {limit}{less}; cut it"))
