"""What holds weights: embeddings and both halves of a depth step, which compute nothing themselves.

All work on [tokens, hidden_size], in the dtype of the matrix products where nothing else is said.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from serving.inference.dense import array, arrays, block_dense, dense, norm, variable
from serving.inference.form import Form


class Embeddings(tf.Module):
    """The embeddings of the Keras encoder: [tokens, hidden_size], float32 or the dtype of a last projection."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.word_only = layer.config.factorization == "word"
        self.words = variable(layer.word_embeddings, tf.float32, "word_embeddings")
        self.projection = None if layer.projection is None else dense(layer.projection, dtype)
        self.only_words = layer.layer_norm is None
        if self.only_words:
            return
        types = layer.token_type_embeddings
        self.segments = None if types is None else variable(types, tf.float32, "token_type_embeddings")
        table, offset = layer.position_embeddings, layer.config.position_offset
        # Rows that no token has are left out.
        self.positions = None if table is None else variable(array(table)[offset:], tf.float32, "position_embeddings")
        self.one_segment = layer.config.type_vocab_size == 1
        self.layer_norm = norm(layer.layer_norm)

    def __call__(self, input_ids: Tensor, segment_ids: Tensor | None, cells: Tensor) -> Tensor:
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
        if self.segments is not None:
            ids = None if self.one_segment else segment_ids
            segments = tf.zeros([1], tf.int32) if ids is None else tf.gather(tf.reshape(ids, [-1]), cells)
            words += tf.gather(self.segments, segments)
        normalised = self.layer_norm(words)
        return normalised if self.word_only else self._project(normalised)

    def _project(self, vectors: Tensor) -> Tensor:
        return vectors if self.projection is None else self.projection(vectors)


class AttentionHalf(tf.Module):
    """Holds the products of attention, those of queries, keys and values as one, and its layer norm.

    Args:
        half: the Keras Half.
        number: its number among those of its kind.
        forms: of the encoder's extensions.
        dtype: of the products.
        weights_first: see `block_dense`.
    """

    def __init__(self, half: Any, number: int, forms: Sequence[Form], dtype: tf.DType, weights_first: bool = False):
        super().__init__()
        owner, names = ("attention", number), ("query", "key", "value")
        join = functools.partial(_joined, half.config, forms=forms, owner=owner)
        kernels, biases = zip(*(arrays(half.product(name)) for name in names))
        kernel, bias = join(kernels, what="kernel"), join(biases, what="bias")
        self.query_key_value = block_dense(kernel, bias, dtype, weights_first)
        self.output = block_dense(*_output(half), dtype, weights_first)
        pairs = _low_rank(forms, owner, half)
        if own := [name for name in names if name in pairs]:
            a, b = (dict(zip(own, parts)) for parts in zip(*(pairs.pop(name) for name in own)))
            some = b[own[0]]
            # Each one's rows next to zeros for those of the others.
            apart = [[b[name] if name == other else 0 * b.get(name, some) for other in own] for name in names]
            parts = [np.concatenate(rows, axis=1) for rows in apart]
            pairs["query_key_value"] = np.concatenate(list(a.values()), axis=2), join(parts, what="low_rank")
        self.low_rank = LowRank(pairs, half, dtype)
        self.layer_norm = norm(half.layer_norm, dtype)


class FeedForwardHalf(tf.Module):
    """Holds two products, or three with a gate, and a layer norm. Arguments are those of AttentionHalf."""

    def __init__(self, half: Any, number: int, forms: Sequence[Form], dtype: tf.DType, weights_first: bool = False):
        super().__init__()
        self.low_rank = LowRank(_low_rank(forms, ("feed_forward", number), half), half, dtype)
        # What is between the products may stay turned, unless something of low rank reads it.
        turned = not self.low_rank
        make = functools.partial(block_dense, dtype=dtype, weights_first=weights_first)
        # What is of low rank is added before the activation function, which is then no part of the product.
        self.is_fused = not self.low_rank
        hidden_act = half.config.hidden_act if self.is_fused else None
        self.intermediate = make(*arrays(half.intermediate), hidden_act=hidden_act, gives_turned=turned)
        self.gate = None if half.gate is None else make(*arrays(half.gate), gives_turned=turned)
        self.output = make(*_output(half), reads_turned=turned)
        self.layer_norm = norm(half.layer_norm, dtype)


def _joined(
    config: AlbertConfig, parts: Sequence[np.ndarray], forms: Sequence[Form], owner: tuple[str, int], what: str
) -> np.ndarray:
    """One array that makes queries, scaled, keys and values, of three of [..., hidden_size]."""
    for form in forms:
        parts = form.fold(parts, what, owner)
    query, key, value = parts
    return np.concatenate([query * config.head_size**-0.5, key, value], axis=-1)


def _output(half: Any) -> tuple[np.ndarray, np.ndarray]:
    """Kernel and bias of a half's last product, times what its branch is multiplied by."""
    (kernel, bias), scale = arrays(half.product("output")), np.float32(half.branch_scale)
    return kernel * scale, bias * scale


def _low_rank(forms: Sequence[Form], owner: tuple[str, int], half: Any) -> dict[str, tuple]:
    """By product, a [visits, inputs, rank] and b [visits, rank, units] of all extensions together."""
    every = {name: [pair for form in forms if (pair := form.low_rank(owner, name)) is not None] for name in half.names}
    scale = np.float32(half.branch_scale)
    every["output"] = [(a, b * scale) for a, b in every["output"]]
    return {
        name: tuple(np.concatenate(parts, axis=axis) for parts, axis in zip(zip(*pairs), (2, 1)))
        for name, pairs in every.items()
        if pairs
    }


class LowRank(tf.Module):
    """What the products of a block's half differ by from step to step: inputs @ a[step] @ b[step].

    Args:
        products: by the name of a product, its a [visits, inputs, rank] and b [visits, rank, units].
        half: the Keras Half, whose visits are by the steps that run it.
        dtype: of the products.
    """

    def __init__(self, products: dict[str, tuple[np.ndarray, np.ndarray]], half: Any, dtype: tf.DType):
        super().__init__()
        steps = range(half.config.num_steps)
        visits = [half.steps.index(step) if step in half.steps else 0 for step in steps]
        self.dtype, self.visits = dtype, np.array(visits, np.int32)
        self.factors = {
            name: (variable(a, dtype, f"{name}_a"), variable(b, dtype, f"{name}_b"))
            for name, (a, b) in products.items()
        }

    def __bool__(self) -> bool:
        return bool(self.factors)

    def get(self, name: str, inputs: Tensor, step: Tensor, residual: Tensor | None = None) -> Any:
        """Returns what is added to a product at a step, with `residual`; that alone where nothing is."""
        if name not in self.factors:
            return residual
        a, b = (factor[tf.constant(self.visits)[step]] for factor in self.factors[name])
        added = tf.matmul(tf.matmul(tf.cast(inputs, self.dtype), a), b)
        return added if residual is None else residual + added
