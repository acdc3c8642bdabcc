"""Kernels and Rows for padded batches, and checks of features."""

from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import activation, check_range, dropout, is_symbolic, or_nan, plain, site_seed, whole
from albert_tf.config import AlbertConfig
from albert_tf.config.registry import REGISTRY
from albert_tf.layers.block import MASKED_SCORE, Attention, Kernels, Rows, Step, TokenPairs
from albert_tf.layers.depth import of_step, visit_of
from albert_tf.layers.weights import Half, check_length
from tfrecords.base.errors import UserError, nearest

# Numbers of further dropouts of a step, besides 0 to 2 (see `site_seed`): of the parts of a long row, and inside the
# feed-forward network.
_PART_SITE, _INSIDE_SITE = 1 << 22, 1 << 17


class LayerKernels(Kernels):
    """Multiplies by the Keras layers of an AlbertEncoder, for one call."""

    def __init__(self, encoder: Any, seed: Tensor = None, probabilities: list[Tensor] | None = None):
        self.config = config = encoder.config
        self.halves, self.seed, self.probabilities = encoder.halves, seed, probabilities
        self.activation, self.is_pre = activation(config.hidden_act), config.norm_position == "pre"
        self.is_gated = config.feed_forward == "glu"
        # Unscaled products of wide heads may exceed float16's 65504.
        scale = config.head_size**-0.5
        self.scale = (scale, 1.0) if encoder.compute_dtype == "float16" else (1.0, scale)
        self._extensions = [(one, encoder.extension_weights[one.name]) for one in config.extensions]

    def half(self, kind: str, step: Step) -> Half:
        return self.halves[kind, getattr(step, kind)]

    def query_key_value(self, step: Step, inputs: Tensor, attended: Tensor) -> tuple[Tensor, ...]:
        query = self.product("attention", "query", step, inputs)
        query = query if self.scale[0] == 1 else query * self.scale[0]
        return query, *(self.product("attention", name, step, attended) for name in ("key", "value"))

    def dense(self, name: str, step: Step, inputs: Tensor) -> Tensor:
        product = self.product("feed_forward", name, step, inputs)
        return self.activation(product) if name == "intermediate" else product

    def add_to_residual(self, half: str, step: Step, inside: Tensor, residual: Tensor) -> Tensor:
        rate = self.config.hidden_dropout_prob
        if half == "feed_forward" and self.config.spec.drops_inside:
            inside = dropout(inside, rate, self._site(step, _INSIDE_SITE))
        product = self.product(half, "output", step, inside)
        product = dropout(product, rate, self._site(step, 1 if half == "attention" else 2))
        return residual + product if self.is_pre else self.half(half, step).layer_norm(residual, product)

    def softmax(self, scores: Tensor, step: Step, part: Tensor = None) -> Tensor:
        probabilities = ops.cast(ops.softmax(ops.cast(scores, "float32"), axis=-1), scores.dtype)
        if self.probabilities is not None:
            self.probabilities.append(probabilities)
        site = 0 if part is None else _PART_SITE * (part + 1)
        return dropout(probabilities, self.config.attention_probs_dropout_prob, self._site(step, site))

    def product(self, half: str, name: str, step: Step, inputs: Tensor) -> Tensor:
        owner, product = (half, getattr(step, half)), self.half(half, step).product(name)(inputs)
        for extension, weights in self._extensions:
            if (pair := extension.low_rank(weights, owner, name)) is not None:
                visit = visit_of(self.config, weights.steps[owner], step.number)
                a, b = (ops.cast(of_step(one, visit), inputs.dtype) for one in pair)
                product = product + ops.matmul(ops.matmul(inputs, a), b)
        return product

    def _site(self, step: Step, site: Tensor) -> Tensor:
        return site_seed(site_seed(self.seed, 3 * step.number), site)


def _bias(input_mask: Tensor, sequence_ids: Tensor, dtype: str) -> Tensor:
    allowed = None if input_mask is None else ops.cast(input_mask, "bool")[:, None, None, :]
    if sequence_ids is not None:
        same = ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :])
        allowed = same if allowed is None else ops.logical_and(same, allowed)
    if allowed is None:
        return None
    return ops.cast(ops.logical_not(allowed), dtype) * ops.cast(MASKED_SCORE, dtype)


class PaddedRows(Rows):
    """The rows of a batch, padded to one length; `keys`: keys of a row, including those of an extension's memory."""

    def __init__(
        self,
        config: AlbertConfig,
        features: dict[str, Tensor],
        attention: Attention,
        dtype: str,
        seed: Tensor = None,
        draw_seed: Tensor = None,
    ):
        self.config, self.features, self.attention = config, features, attention
        self.dtype, self.seed, self.draw_seed = dtype, seed, draw_seed
        self.length = self.keys = ops.shape(features["input_ids"])[1]
        self.positions = token_positions(features, config)
        bias = _bias(features.get("input_mask"), features.get("sequence_ids"), dtype)
        self.pairs = TokenPairs(bias, {})

    @property
    def weights(self) -> Tensor:
        mask = self.features.get("input_mask")
        return ops.cast(ops.ones_like(self.features["input_ids"]) if mask is None else mask, "float32")

    def sum(self, values: Tensor) -> Tensor:
        shape = (*values.shape[:-1], *ops.shape(self.weights))
        return ops.sum(ops.reshape(values, shape) * self.weights, axis=-1)

    def spread(self, values: Tensor) -> Tensor:
        return ops.reshape(ops.broadcast_to(values[:, None], ops.shape(self.weights)), (-1,))

    def token_positions(self) -> Tensor:
        return ops.arange(self.length)[None] if self.positions is None else self.positions

    def columns(self) -> Tensor:
        return ops.arange(self.length)[None]

    def add_feature(self, name: str, values: Tensor) -> None:
        self.pairs.features[name] = (values, values)

    def attend(self, projected: tuple, step: Step) -> Tensor:
        query, key, value = projected
        query, key, value = self._heads(query, self.length), self._heads(key, self.keys), self._heads(value, self.keys)
        contexts = self.attention(query, key, value, self.pairs, step)
        return ops.reshape(ops.transpose(contexts, (0, 2, 1, 3)), (-1, self.config.hidden_size))

    def _heads(self, flat: Tensor, length: Tensor) -> Tensor:
        split = ops.reshape(flat, (-1, length, self.config.num_attention_heads, self.config.head_size))
        return ops.transpose(split, (0, 2, 1, 3))

    def words(self, words: Tensor) -> Tensor:
        """Returns word embeddings [batch, length, width], to which an extension may append tokens."""
        return words

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return summary_tokens(self.rectangle(hidden), self.features, self.config)

    def summaries(self, rectangle: Tensor) -> Tensor:
        """Returns what the pooler reads: [CLS], or the mean of all tokens."""
        if self.config.pooling == "cls":
            return summary_tokens(rectangle, self.features, self.config)
        if "sequence_starts" in self.features:
            raise plain(UserError(f"pooling '{self.config.pooling}' takes whole rows; leave out sequence_starts"))
        weights = self.weights[:, :, None]
        mean = ops.sum(ops.cast(rectangle, "float32") * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.cast(mean, rectangle.dtype)

    def rectangle(self, values: Tensor) -> Tensor:
        return ops.reshape(values, (-1, self.length, *values.shape[1:]))

    def content(self, rectangle: Tensor) -> Tensor:
        return rectangle

    def probabilities(self, of_step: Tensor) -> Tensor:
        return of_step

    def outputs(self, rectangle: Tensor) -> dict[str, Tensor]:
        return {"sequence_output": rectangle}


# The names in transformers.
_ALIASES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_OF_ENCODER = ("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids", "sequence_starts")
_OF_TOKENS = _OF_ENCODER[:-1]
# Features for heads, which the encoder ignores: positions, labels and their weights.
_OF_PRETRAINING = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels", "pair_weights")
_OF_EXTENSIONS = tuple(name for entry in REGISTRY.values() for name in entry.features)
_OF_SPANS = ("p_mask", "start_mask", "start_positions", "end_positions", "is_impossible")
NAMES = (*_OF_ENCODER, *_OF_EXTENSIONS, *_OF_PRETRAINING, *_OF_SPANS)


def by_name(features: Any) -> dict[str, Any]:
    """Returns a dict of features by this package's names; raises UserError for unknown names."""
    if not isinstance(features, dict):
        features = {"input_ids": features}
    named = {_ALIASES.get(name, name): value for name, value in features.items()}
    for name in named:
        if name not in NAMES:
            hint = nearest(name, [*NAMES, *_ALIASES]) or f"; known are {', '.join(_OF_ENCODER)}"
            raise plain(UserError(f"no model knows a feature '{name}'{hint}"))
    if len(named) < len(features):
        both = [f"{alias} and {name}" for alias, name in _ALIASES.items() if alias in features and name in features]
        raise plain(UserError(f"the features hold {', '.join(both)}, which are the same; leave one out"))
    if "input_ids" not in named:
        raise plain(UserError(f"the features hold no input_ids, only {', '.join(named) or 'nothing'}"))
    return {name: whole(name, value) for name, value in named.items()} if is_symbolic() else named


def check_shapes(features: dict[str, Any], axes: str = "[batch, sequence]") -> None:
    """Raises UserError if ids or another feature of each token have other axes."""
    expected, ids = axes.count(",") + 1, features["input_ids"].shape
    for name in _OF_TOKENS:
        shape = features[name].shape if features.get(name) is not None else ids
        if len(shape) != expected or (None not in (shape[-1], ids[-1]) and shape[-1] != ids[-1]):
            of_ids = "" if name == "input_ids" else f", that of input_ids {tuple(ids)}"
            raise plain(UserError(f"{name}: the shape is {tuple(shape)}{of_ids}; give {axes}"))


def check_features(features: dict[str, Any], config: AlbertConfig) -> None:
    """Raises UserError for features that an encoder of `config` does not take."""
    check_shapes(features)
    if "float" in (dtype := keras.backend.standardize_dtype(features["input_ids"].dtype)):
        raise plain(UserError(f"input_ids: {dtype} is not read; give whole numbers, such as int32"))
    for one in config.extensions:
        one.check_features(features)
    for extension, entry in REGISTRY.items():
        for name in entry.features:
            if name in features and config.extension(extension) is None:
                raise plain(UserError(f"{name} is for an encoder with {entry.requested_by}; leave it out"))


def check_values(features: Any, config: AlbertConfig) -> None:
    """Raises UserError for ids or positions out of range; symbolic tensors are not checked."""
    features = by_name(features)
    for name, (least, most) in _ranges(config, features["input_ids"].shape[-1]).items():
        if name in features:
            if "float" in str(features[name].dtype):
                raise UserError(f"{name}: {features[name].dtype} is not read; give whole numbers, such as int32")
            check_range(features[name], most, name, least)


def _ranges(config: AlbertConfig, length: int) -> dict[str, tuple[int, int]]:
    ranges = dict.fromkeys(("input_ids", "masked_lm_ids"), (0, config.vocab_size)) | {"next_sentence_labels": (0, 2)}
    positions = ("masked_lm_positions", "query_positions", "sequence_starts", "start_positions", "end_positions")
    ranges |= dict.fromkeys(positions, (0, length))
    if config.spec.has_types and config.type_vocab_size > 1:
        ranges["segment_ids"] = (0, config.type_vocab_size)
    if config.spec.has_positions:
        ranges["position_ids"] = (-config.position_offset, config.max_seq_length)
    return ranges


def token_positions(features: dict[str, Any], config: AlbertConfig) -> Tensor | None:
    """Returns positions [batch, sequence] before position_offset is added; None if they are 0, 1, ... in all rows."""
    if features.get("position_ids") is not None:
        return features["position_ids"]
    if "sequence_ids" in features:
        ids = features["sequence_ids"]
        # The number of earlier tokens of the same sequence.
        same = ops.cast(ops.equal(ids[:, :, None], ids[:, None, :]), "int32")
        return ops.sum(ops.tril(same, k=-1), axis=-1)
    if not config.position_offset or "input_mask" not in features:
        return None
    check_length(ops.shape(features["input_mask"])[1], config)
    # Padding is -1, the row before the offset (modeling_roberta.py:142).
    mask = ops.cast(ops.cast(features["input_mask"], "bool"), "int32")
    return ops.cumsum(mask, axis=1) * mask - 1


def summary_columns(features: dict[str, Any], config: AlbertConfig) -> Tensor:
    """Returns the column of each row's [CLS], int32 [batch]: the first or, in XLNet, the last before padding."""
    ids = features["input_ids"]
    if not config.spec.last_token:
        return ops.zeros_like(ops.cast(ids[:, 0], "int32"))
    mask = ops.cast(features.get("input_mask", ops.ones_like(ids)), "int32")
    return ops.max(mask * ops.arange(ops.shape(ids)[1], dtype="int32"), axis=1)


def summary_tokens(sequence_output: Tensor, features: dict[str, Any], config: AlbertConfig) -> Tensor:
    """Returns the vector of each [CLS]: [batch, hidden_size], or [batch, n, hidden_size] with sequence_starts."""
    if (starts := features.get("sequence_starts")) is not None:
        length = ops.shape(sequence_output)[1]
        check_range(starts, length, "sequence_starts")
        columns = ops.cast(starts, "int32")[:, :, None]
        return or_nan(ops.take_along_axis(sequence_output, columns, axis=1), columns, length)
    if not config.spec.last_token:
        return sequence_output[:, 0]
    return ops.take_along_axis(sequence_output, summary_columns(features, config)[:, None, None], axis=1)[:, 0]
