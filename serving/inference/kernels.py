"""The matrix products of exports, and how extensions change them."""

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import Extension
from albert_tf.layers.block import Attention, Kernels, Step
from albert_tf.layers.depth import Runner
from albert_tf.layers.encoder import AlbertEncoder
from serving.inference.layers import ExportedDense, act, array, arrays, norm, variable

# A Recorder's names for the first and the last product of attention and of the feed-forward network.
RECORDED = ("query_key_value", "attention", "intermediate", "feed_forward")


class KernelSettings(NamedTuple):
    """Export settings that extensions may read; `longest` is the maximum row length."""

    dtype: tf.DType
    longest: int


class ExportedExtension(tf.Module):
    """An extension in an export, with its weights as constants; `serving/inference/extensions` has subclasses.

    `has_one_row`: whether it supports single rows (OneRow). `for_litert`: whether it is for LiteRT files.
    """

    has_one_row, for_litert = True, False

    def __init__(self, extension: Extension, encoder: AlbertEncoder, settings: KernelSettings):
        super().__init__()
        self.extension: Any = extension
        self.config, self.weights = encoder.config, encoder.extension_weights[extension.name].map(array)

    def fold(self, parts: Sequence[np.ndarray], what: str, half: tuple[str, int]) -> Sequence[np.ndarray]:
        """Adds the extension's constants to the weights of queries, keys and values.

        `what` is "kernel", "bias" or "low_rank"; `parts` are these arrays.
        """
        return parts

    def low_rank(self, half: tuple[str, int], product: str) -> tuple[np.ndarray, np.ndarray] | None:
        return self.extension.low_rank(self.weights, half, product)

    def rows(self, rows: Any, features: dict[str, Any]) -> Any:
        return self.extension.rows(rows, features, self.weights)

    def hoist(self, rows: Any) -> None:
        """Stores in `rows.hoisted` values that all steps share."""

    def attention(self, attention: Attention) -> Attention:
        return self.extension.attention(attention, self.weights)

    def around(self, runner: Runner) -> Runner:
        return self.extension.around(runner, self.weights)


def exported_extensions(
    encoder: AlbertEncoder, settings: KernelSettings, for_litert: bool = False
) -> list[ExportedExtension]:
    """Returns an object per extension of an encoder: of its class for exports or, if `for_litert`, for LiteRT.

    Without such a class it is an ExportedExtension.
    """
    found = []
    for extension in encoder.config.extensions:
        defined, name = (), f"serving.inference.extensions.{extension.name}"
        if importlib.util.find_spec(name) is not None:
            defined = [one for one in vars(importlib.import_module(name)).values() if isinstance(one, type)]
        own = (one for one in defined if one.__module__ == name and issubclass(one, ExportedExtension))
        cls = next((one for one in own if one.for_litert == for_litert), ExportedExtension)
        found.append(cls(extension, encoder, settings))
    return found


class AttentionHalf(tf.Module):
    """The matrix products and the norm of attention; one product computes queries, keys and values."""

    def __init__(
        self,
        half: Any,
        number: int,
        extensions: Sequence[ExportedExtension],
        dtype: tf.DType,
        weights_first: bool = False,
    ):
        super().__init__()
        owner, names = ("attention", number), ("query", "key", "value")
        join = functools.partial(_joined, half.config, extensions=extensions, owner=owner)
        kernels, biases = zip(*(arrays(half.product(name)) for name in names))
        kernel, bias = join(kernels, what="kernel"), join(biases, what="bias")
        self.query_key_value = ExportedDense(kernel, bias, dtype, weights_first=weights_first)
        self.output = ExportedDense(*arrays(half.product("output")), dtype, weights_first=weights_first)
        pairs = _low_rank(extensions, owner, half)
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
    """The matrix products and the norm of a feed-forward network."""

    def __init__(
        self,
        half: Any,
        number: int,
        extensions: Sequence[ExportedExtension],
        dtype: tf.DType,
        weights_first: bool = False,
    ):
        super().__init__()
        self.low_rank = LowRank(_low_rank(extensions, ("feed_forward", number), half), half, dtype)
        make = functools.partial(ExportedDense, dtype=dtype, weights_first=weights_first)
        # A low-rank term must be added before the activation function, which then cannot be fused with the product.
        # It also reads the values between the products, which else may stay transposed.
        self.is_fused = transposed = not self.low_rank
        hidden_act = half.config.hidden_act if self.is_fused else None
        self.intermediate = make(*arrays(half.intermediate), hidden_act=hidden_act, returns_transposed=transposed)
        self.gate = None if half.gate is None else make(*arrays(half.gate), returns_transposed=transposed)
        self.output = make(*arrays(half.product("output")), reads_transposed=transposed)
        self.layer_norm = norm(half.layer_norm, dtype)


def _joined(
    config: AlbertConfig,
    parts: Sequence[np.ndarray],
    extensions: Sequence[ExportedExtension],
    owner: tuple[str, int],
    what: str,
) -> np.ndarray:
    for one in extensions:
        parts = one.fold(parts, what, owner)
    query, key, value = parts
    return np.concatenate([query * config.head_size**-0.5, key, value], axis=-1)


def _low_rank(extensions: Sequence[ExportedExtension], owner: tuple[str, int], half: Any) -> dict[str, tuple]:
    every = {
        name: [pair for one in extensions if (pair := one.low_rank(owner, name)) is not None] for name in half.names
    }
    return {
        name: tuple(np.concatenate(parts, axis=axis) for parts, axis in zip(zip(*pairs), (2, 1)))
        for name, pairs in every.items()
        if pairs
    }


class LowRank(tf.Module):
    """Low-rank terms of a half's products: inputs @ a[step] @ b[step].

    `products` maps a name to the pair a [visits, inputs, rank], b [visits, rank, units]; a visit is a step
    that runs the half.
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

    def get(self, name: str, inputs: Tensor, step: Step, residual: Tensor | None = None) -> Any:
        """Returns a step's low-rank term, if any, plus `residual`."""
        if name not in self.factors:
            return residual
        a, b = (factor[tf.constant(self.visits)[step.number]] for factor in self.factors[name])
        added = tf.matmul(tf.matmul(tf.cast(inputs, self.dtype), a), b)
        return added if residual is None else residual + added


class FloatKernels(Kernels):
    """Computes the matrix products of attention and feed-forward halves in floats."""

    def __init__(self, config: AlbertConfig, attentions: list[AttentionHalf], feed_forwards: list[FeedForwardHalf]):
        self.config, self.is_pre = config, config.norm_position == "pre"
        self.is_gated = config.feed_forward == "glu"
        self.scale = config.head_size**-0.5, 1.0
        self.halves: dict[str, list[Any]] = {"attention": attentions, "feed_forward": feed_forwards}

    def half(self, kind: str, step: Step) -> Any:
        return self.halves[kind][getattr(step, kind)]

    def half_input(self, half: str, step: Step, hidden: Tensor) -> Tensor:
        return self.half(half, step).layer_norm(hidden) if self.is_pre else hidden

    def query_key_value(self, step: Step, inputs: Tensor, attended: Tensor) -> Tensor:
        """Returns queries, keys and values [tokens, 3 * hidden_size]; memory's queries are not used."""
        self.note(step, "query_key_value", attended)
        part = self.half("attention", step)
        return part.query_key_value(attended, part.low_rank.get("query_key_value", attended, step))

    def dense(self, name: str, step: Step, inputs: Tensor) -> Tensor:
        self.note(step, "intermediate", inputs)
        part = self.half("feed_forward", step)
        product = getattr(part, name)(inputs, part.low_rank.get(name, inputs, step))
        return act(self.config.hidden_act, product) if name == "intermediate" and not part.is_fused else product

    def add_to_residual(self, half: str, step: Step, inside: Tensor, residual: Tensor) -> Tensor:
        self.note(step, half, inside)
        part = self.half(half, step)
        total = part.output(inside, part.low_rank.get("output", inside, step, residual))
        return total if self.is_pre else part.layer_norm(total)

    def note(self, step: Step, name: str, inputs: Tensor) -> None:
        """Does nothing with the inputs of a product, one of RECORDED."""

    def multiply(self, first: Tensor, second: Tensor, transpose_b: bool = False) -> Tensor:
        return tf.matmul(first, second, transpose_b=transpose_b)

    def softmax(self, scores: Tensor, step: Step, part: Any = None) -> Tensor:
        return tf.nn.softmax(scores)


class Recorder(FloatKernels):
    """Records the largest absolute input of each product and step, over the first `count` tokens."""

    def __init__(self, kernels: FloatKernels, count: Tensor):
        super().__init__(kernels.config, kernels.halves["attention"], kernels.halves["feed_forward"])
        self.count, self.largest = count, dict[tuple[int, str], float]()

    def note(self, step: Step, name: str, inputs: Tensor) -> None:
        key = step.number, name
        self.largest[key] = max(self.largest.get(key, 0.0), largest_of(inputs[: self.count]))


def largest_of(inputs: Tensor) -> float:
    """Largest absolute value, at least 1e-6."""
    return max(1e-6, float(tf.reduce_max(tf.abs(inputs))))
