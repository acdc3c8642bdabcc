"""What holds weights: embeddings and both halves of a depth step.

All work on [tokens, hidden_size], in the dtype of the matrix products where nothing else is said.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from serving.inference.attention import Reach, Rows
from serving.inference.dense import act, array, arrays, block_dense, dense, norm, variable
from serving.inference.relative import RelativeScores


class Embeddings(tf.Module):
    """The embeddings of the Keras encoder: [tokens, hidden_size], float32 or the dtype of a last projection."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.word_only = layer.config.factorization == "word"
        self.words = variable(layer.word_embeddings, tf.float32, "word_embeddings")
        self.projection = None if layer.projection is None else dense(layer.projection, dtype)
        # Where positions are relative, words are all there is.
        self.only_words = layer.token_type_embeddings is None
        if self.only_words:
            return
        self.segments = variable(layer.token_type_embeddings, tf.float32, "token_type_embeddings")
        table, offset = layer.position_embeddings, layer.config.position_offset
        # Rows that no token has are left out.
        self.positions = None if table is None else variable(array(table)[offset:], tf.float32, "position_embeddings")
        self.one_segment = layer.config.type_vocab_size == 1
        self.layer_norm = norm(layer.layer_norm)

    def __call__(self, input_ids: tf.Tensor, segment_ids: tf.Tensor | None, cells: tf.Tensor) -> tf.Tensor:
        """Embeds those of int32 [batch, length] ids and segments that `cells`, int32 [tokens], names."""
        positions = cells % tf.shape(input_ids)[1]
        input_ids = tf.gather(tf.reshape(input_ids, [-1]), cells)
        words = tf.gather(self.words, input_ids)
        if self.only_words:
            return self._project(words)
        if self.word_only:
            words = tf.cast(self._project(words), tf.float32)
        if self.positions is not None:
            words += tf.gather(self.positions, positions)
        segment_ids = None if self.one_segment else segment_ids
        segments = tf.zeros([1], tf.int32) if segment_ids is None else tf.gather(tf.reshape(segment_ids, [-1]), cells)
        normalised = self.layer_norm(words + tf.gather(self.segments, segments))
        return normalised if self.word_only else self._project(normalised)

    def _project(self, vectors: tf.Tensor) -> tf.Tensor:
        return vectors if self.projection is None else self.projection(vectors)


class Attention(tf.Module):
    """Self-attention, residual, layer norm; or layer norm, self-attention, residual.

    Args:
        layer: Keras's SelfAttention.
        dtype: of the products.
        weights_first: See `block_dense`.
        relative: What scores distances, of a RelativeAttention.
    """

    def __init__(self, layer, dtype: tf.DType, weights_first: bool = False, relative: RelativeScores | None = None):
        super().__init__()
        self.relative = relative
        self.is_pre = layer.config.norm_position == "pre"
        self.query_key_value = block_dense(*query_key_value(layer), dtype, weights_first)
        self.output = block_dense(*arrays(layer.output_dense), dtype, weights_first)
        self.low_rank = attention_low_rank(layer, dtype)
        self.layer_norm = norm(layer.layer_norm, dtype)

    def __call__(
        self,
        hidden: tf.Tensor,
        rows: Rows,
        step: tf.Tensor | int,
        only_summary: bool = False,
        is_local: bool = False,
    ) -> tf.Tensor:
        """step: which of the plan's steps this is. only_summary, is_local: see `Reach`."""
        inputs = rows.with_memory(self.layer_norm(hidden) if self.is_pre else hidden, step)
        together = self.query_key_value(inputs, self.low_rank.get("query_key_value", inputs, step))
        context = rows.attend(together, Reach(only_summary, is_local, self.relative, step))
        residual = rows.summary_tokens(hidden) if only_summary else hidden
        total = self.output(context, self.low_rank.get("output", context, step, residual))
        return total if self.is_pre else self.layer_norm(total)


class FeedForward(tf.Module):
    """Two dense layers, or three with a gate, residual, layer norm; or the layer norm first."""

    def __init__(self, layer, dtype: tf.DType, weights_first: bool = False):
        super().__init__()
        self.is_pre = layer.config.norm_position == "pre"
        self.low_rank = feed_forward_low_rank(layer, dtype)
        # What is of low rank is added before the activation function, which is then no part of the product.
        self.hidden_act = layer.config.hidden_act if self.low_rank else None
        # What is between the products may stay turned, unless something of low rank reads it.
        turned = not self.low_rank
        make = functools.partial(block_dense, dtype=dtype, weights_first=weights_first)
        own_act = None if self.low_rank else layer.config.hidden_act
        self.intermediate = make(*arrays(layer.intermediate), hidden_act=own_act, gives_turned=turned)
        self.gate = None if layer.gate is None else make(*arrays(layer.gate), gives_turned=turned)
        self.output = make(*arrays(layer.output_dense), reads_turned=turned)
        self.layer_norm = norm(layer.layer_norm, dtype)

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        inputs = self.layer_norm(hidden) if self.is_pre else hidden
        inside = self.intermediate(inputs, self.low_rank.get("intermediate", inputs, step))
        if self.hidden_act is not None:
            inside = act(self.hidden_act, inside)
        if self.gate is not None:
            inside *= self.gate(inputs, self.low_rank.get("gate", inputs, step))
        total = self.output(inside, self.low_rank.get("output", inside, step, hidden))
        return total if self.is_pre else self.layer_norm(total)


def query_key_value(layer) -> tuple[np.ndarray, np.ndarray]:
    """Gives kernel and bias of a SelfAttention's three products as one, the scores' scale folded into the query.

    Where positions are rotary, the numbers of a pair lie beside each other in queries and keys: a complex number, that
    one product turns. The scores are the same in any order. Where they are relative, the query has the content bias of
    the first step that runs the layer.
    """
    kernels, biases = zip(*(arrays(part) for part in (layer.query, layer.key, layer.value)))
    if layer.config.position_type == "relative":
        biases = (array(layer.content_bias).reshape(-1, layer.config.hidden_size)[0], *biases[1:])
    return _joined(layer.config, kernels), _joined(layer.config, biases)


def _joined(config: AlbertConfig, parts: Sequence[np.ndarray]) -> np.ndarray:
    """What gives queries, keys and values, each [..., hidden_size], as `query_key_value` has it."""
    query, key, value = parts
    if config.position_type == "rotary":
        order = np.arange(config.hidden_size).reshape(config.num_attention_heads, 2, -1).transpose(0, 2, 1).reshape(-1)
        query, key = query[..., order], key[..., order]
    return np.concatenate([query * config.head_size**-0.5, key, value], axis=-1)


class LowRank(tf.Module):
    """What the products of a block's half differ by from step to step: inputs @ a[step] @ b[step].

    Args:
        products: by the name of a product, its a [visits, inputs, rank] and b [visits, rank, units].
        visits: for each step of the plan, which of the visits it is.
        dtype: of the products.
    """

    def __init__(self, products: dict[str, tuple[np.ndarray, np.ndarray]], visits: Sequence[int], dtype: tf.DType):
        super().__init__()
        self.dtype, self.visits = dtype, np.array(visits, np.int32)
        self.factors = {
            name: (variable(a, dtype, f"{name}_a"), variable(b, dtype, f"{name}_b"))
            for name, (a, b) in products.items()
        }

    def __bool__(self) -> bool:
        return bool(self.factors)

    def get(self, name: str, inputs: tf.Tensor, step: tf.Tensor | int, residual: tf.Tensor | None = None) -> Any:
        """Gives what is added to a product at a step, with `residual`; that alone where nothing is."""
        if name not in self.factors:
            return residual
        a, b = (factor[tf.constant(self.visits)[step]] for factor in self.factors[name])
        added = tf.matmul(tf.matmul(tf.cast(inputs, self.dtype), a), b)
        return added if residual is None else residual + added


def attention_low_rank(layer, dtype: tf.DType) -> LowRank:
    """Makes the twin of a SelfAttention's adapters, those of queries, keys and values as one."""
    names = ("query", "key", "value")
    if not (adapters := _adapters(layer)):
        return LowRank({}, [], dtype)
    a, b = (([array(getattr(adapters[name], part)) for name in names]) for part in "ab")
    # Each part's rows beside zeros for those of the others.
    apart = [np.concatenate([part if i == j else 0 * part for j in range(3)], axis=1) for i, part in enumerate(b)]
    own = {"query_key_value": (np.concatenate(a, axis=2), _joined(layer.config, apart))}
    return _low_rank(layer, own, ["output"], dtype)


def feed_forward_low_rank(layer, dtype: tf.DType) -> LowRank:
    """Makes the twin of a FeedForward's adapters."""
    return _low_rank(layer, {}, list(adapters), dtype) if (adapters := _adapters(layer)) else LowRank({}, [], dtype)


def _adapters(layer) -> dict:
    """The layers that hold what a half's products have of low rank, by the names of the products."""
    return {
        one.name.removeprefix("depth_lora_"): one for one in layer.held_layers() if one.extension.name == "depth_lora"
    }


def _low_rank(layer, products: dict, names: Sequence[str], dtype: tf.DType) -> LowRank:
    adapters = _adapters(layer)
    products = products | {name: (array(adapters[name].a), array(adapters[name].b)) for name in names}
    visits = [layer.steps.index(step) if step in layer.steps else 0 for step in range(layer.config.num_steps)]
    return LowRank(products, visits, dtype)


@contextlib.contextmanager
def replaced(parts: Sequence[Any], kind: type, make: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """Puts something else in the place of some layers for a while.

    Args:
        parts: Objects that hold the layers as attributes.
        kind: The class of the layers.
        make: Gives what takes a layer's place.

    Yields:
        What `make` gave, in the order of the parts and of their attributes.
    """
    layers = [
        (part, name, layer) for part in parts for name, layer in list(vars(part).items()) if isinstance(layer, kind)
    ]
    others = [make(layer) for _, _, layer in layers]
    try:
        for (part, name, _), other in zip(layers, others):
            setattr(part, name, other)
        yield others
    finally:
        for part, name, layer in layers:
            setattr(part, name, layer)
