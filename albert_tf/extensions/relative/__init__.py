"""Relative attention: scores depend on content, distance and segments, as in XLNet.

Source: zihangdai/xlnet modeling.py:128-160, 319-382. The score of query i and key j, before division by
sqrt(head_size), is

    (q_i + content_bias) k_j + (q_i + position_bias) W_r R[i - j] + (q_i + segment_bias) s[segments differ]

where R[d] encodes the distance d as sinusoids.
"""

import dataclasses
from typing import Any

from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import plain
from albert_tf.config.extension import Extension, RowCost, Weight, WeightLayer
from albert_tf.config.registry import Spec, Weights
from albert_tf.extensions.relative.relations import Relations
from albert_tf.layers.block import Step, TokenPairs
from albert_tf.layers.depth import Runner, of_step, visit_of
from albert_tf.layers.padded import PaddedRows
from albert_tf.layers.weights import initializer
from tfrecords.base.errors import UserError, refuse

# What the backward pass stores of a pair in place of one number, since distances have scores too: 3.1 GiB, where this
# says 3.2, of a small model with two streams and a memory, 32 rows of 128 tokens.
_STORED_SCORES = 2.0
BIASES = ("content_bias", "position_bias", "segment_bias")


@dataclasses.dataclass(frozen=True)
class Relative(Extension):
    """Adds scores for distances and segments to attention, which may include tokens of previous rows (XLNet).

    There is no position table, so that rows may have any length. Embeddings have no layer norm, and attention's dense
    layers no biases.

    Attributes:
        position_type: "relative".
        attention_type: "bi": tokens attend to all tokens; "uni": to no later token.
        clamp_length: larger distances count as this one; 0 for no limit.
        memory_length: number of positions of previous rows that tokens attend to; 0: none. Above 0, the encoder returns
            the memory for the next rows.
        reuse_length: number of a row's first tokens that are remembered; 0 for all.
        untie_biases: whether each step of a shared block has its own position, content and segment biases.
    """

    name, order, for_litert = "relative", 5, False
    packs = False
    no_exits = "exits look at a row's first token, and [CLS] is the last"
    published = ("position_type", "attention_type", "clamp_length", "memory_length", "reuse_length")
    choices = {"attention_type": ("bi", "uni")}
    free = ("memory_length", "reuse_length")
    needed = ("attention_type", "clamp_length", "memory_length", "reuse_length", "untie_biases")
    position_type: str = "absolute"
    attention_type: str = "bi"
    clamp_length: int = 0
    memory_length: int = 0
    reuse_length: int = 0
    untie_biases: bool = False

    @property
    def lists_steps(self) -> bool:  # type: ignore[override]
        return self.memory_length > 0

    def check(self, config: Any) -> None:
        refuse({
            f"position_type 'relative' has a sine for each cosine; hidden_size {config.hidden_size} is odd":
                config.hidden_size % 2,
            f"reuse_length {self.reuse_length} is a part of the memory, and there is none":
                self.reuse_length and not self.memory_length,
        })  # fmt: skip

    def conflicts(self) -> dict[str, str]:
        excluded = {
            "position_offset": "relative positions are those of the columns of a row",
            "attention_window": "distances and memory are of whole rows",
            "halting": "memory and targets are of tokens that all go on",
        }
        if self.memory_length:
            names = ("step_signal", "random_depth_min", "equilibrium_solver", "norm_position")
            excluded |= dict.fromkeys(names, f"the memory_length {self.memory_length} is of a fixed plan's steps")
        return excluded

    def spec(self, spec: Spec) -> Spec:
        without = dict.fromkeys(("has_positions", "has_types", "has_norm", "attention_bias"), False)
        return spec._replace(**without, drops_inside=True, attention_name="relative_attention", last_token=True)

    def check_features(self, features: dict[str, Any]) -> None:
        for name in ("sequence_ids", "sequence_starts", "position_ids"):
            if name in features:
                raise plain(UserError(f"relative positions are those of the columns of a row; leave out {name}"))
        if "target_mapping" in features and "query_positions" in features:
            raise plain(UserError("target_mapping and query_positions say the same; leave one out"))

    def is_untied(self, steps: tuple[int, ...]) -> bool:
        return self.untie_biases and len(steps) > 1

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if owner == "embeddings":
            # The input of targets, whose word is hidden (zihangdai/xlnet modeling.py, mask_emb).
            return [WeightLayer("", "", "", {"mask_embedding": Weight((config.embedding_size,), "normal")})]
        if owner != "attention":
            return []
        shape = (*((len(steps),) if self.is_untied(steps) else ()), config.num_attention_heads, config.head_size)
        weights = {name: Weight(shape, "normal", self.untie_biases) for name in BIASES}
        weights["segment_embeddings"] = Weight((*shape[:-2], 2, *shape[-2:]), "normal", self.untie_biases)
        # Its seed is drawn with those of the other dense layers.
        kernel = {"kernel": Weight((config.hidden_size, config.hidden_size), initializer(config))}
        return [WeightLayer("relative", "relative", "relative", kernel), WeightLayer("", "", "", weights)]

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        # A query is also multiplied with every distance; a pair counts two products, with key and value.
        length = cost.length
        distances = 2 * length if self.attention_type == "bi" else length + 1
        pairs = config.num_steps * (length * length + length * distances // 2)
        stored = _STORED_SCORES * cost.stored_steps * (length + targets) * (length + self.memory_length)
        return cost._replace(length=length + targets, pairs=pairs, stored_pairs=stored)

    def head_weights(self, config: Any) -> int:
        return config.vocab_size

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        mask_embedding = weights.by_owner["embeddings", 0]["mask_embedding"]
        return RelatedRows(rows, Relations(self, rows.config, features, rows.dtype, rows.seed), mask_embedding)

    def hoist(self, rows: Any, weights: Weights) -> None:
        for (kind, i), own in weights.by_owner.items():
            if kind == "attention":
                kernel = own["relative/kernel"]
                rows.pairs.position_keys[i] = position_keys(kernel, rows.relations.distances, rows.config)

    def attention(self, attention: Any, weights: Weights) -> Any:
        return dataclasses.replace(attention, score=_Scores(self, weights))

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return RememberingRunner(runner) if self.memory_length else runner


def position_keys(kernel: Tensor, distances: Tensor, config: Any) -> Tensor:
    """Projects sinusoids of distances, [n, distances, hidden_size], to keys [n, heads, distances, head_size]."""
    projected = ops.matmul(distances, ops.cast(ops.convert_to_tensor(kernel), distances.dtype))
    shape = (-1, ops.shape(distances)[1], config.num_attention_heads, config.head_size)
    return ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))


class _Scores:
    def __init__(self, extension: Relative, weights: Weights):
        self.extension, self.weights = extension, weights

    def __call__(self, attention: Any, query: Tensor, key: Tensor, pairs: "RelatedPairs", step: Step) -> Tensor:
        half, relations = ("attention", step.attention), pairs.relations
        own, steps = self.weights.by_owner[half], self.weights.steps[half]

        def of(name: str) -> Tensor:
            weight = ops.cast(ops.convert_to_tensor(own[name]), query.dtype)
            if not self.extension.is_untied(steps):
                return weight
            return of_step(weight, visit_of(relations.config, steps, step.number))

        # Queries are already scaled by `early`; the biases are not.
        content, position, segment = (
            query + (of(name)[:, None] if attention.query_scale == 1 else of(name)[:, None] * attention.query_scale)
            for name in BIASES
        )
        scores = attention.multiply(content, key, transpose_b=True)
        projected = pairs.position_keys.get(step.attention)
        if projected is None:
            projected = position_keys(own["relative/kernel"], relations.distances, relations.config)
        of_distances = attention.multiply(position, relations.by_row(projected), transpose_b=True)
        scores = scores + relations.scores(of_distances)
        if relations.differs is not None:
            # A term common to all keys changes no probability: only the other segment's difference is added.
            same, other = ops.unstack(of("segment_embeddings"), 2, axis=0)
            added = ops.sum(segment * (other - same)[:, None], axis=-1, keepdims=True)
            scores = scores + added * relations.differs
        return scores if attention.score_scale == 1 else scores * attention.score_scale


class RelatedPairs(TokenPairs):
    """TokenPairs with a batch's Relations and precomputed `position_keys`."""

    def __init__(self, relations: Relations):
        super().__init__(relations.bias, {})
        self.relations, self.position_keys = relations, dict[int, Tensor]()


class RelatedRows(PaddedRows):
    """Padded rows whose tokens may follow a memory and precede prediction targets."""

    def __init__(self, rows: PaddedRows, relations: Relations, mask_embedding: Any):
        super().__init__(rows.config, rows.features, rows.attention, rows.dtype, rows.seed, rows.draw_seed)
        self.relations, self.mask_embedding, self.keys = relations, mask_embedding, relations.keys
        self.pairs = RelatedPairs(relations)
        if relations.queries is not None:
            self.length = self.length + relations.queries

    @property
    def weights(self) -> Tensor:
        weights, queries = super().weights, self.relations.queries
        if queries is None:
            return weights
        return ops.concatenate([weights, ops.ones((ops.shape(weights)[0], queries))], axis=1)

    def attended(self, step: Step, inputs: Tensor) -> Tensor:
        content = self.content(self.rectangle(inputs))
        if self.relations.memory is not None:
            content = ops.concatenate([of_step(self.relations.memory, step.number), content], axis=1)
        return ops.reshape(content, (-1, self.config.hidden_size))

    def attend(self, projected: tuple, step: Step) -> Tensor:
        contexts = self.relations.weighed(self.rectangle(super().attend(projected, step)))
        return ops.reshape(contexts, (-1, self.config.hidden_size))

    def words(self, words: Tensor) -> Tensor:
        if self.relations.queries is None:
            return words
        shape = (ops.shape(words)[0], self.relations.queries, words.shape[-1])
        masks = ops.broadcast_to(ops.convert_to_tensor(self.mask_embedding), shape)
        return ops.concatenate([words, ops.cast(masks, words.dtype)], axis=1)

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return self.summaries(self.content(self.rectangle(hidden)))

    def content(self, rectangle: Tensor) -> Tensor:
        return self.relations.content(rectangle)

    def probabilities(self, of_step: Tensor) -> Tensor:
        return of_step[:, :, : self.relations.length]

    def outputs(self, rectangle: Tensor) -> dict[str, Tensor]:
        return self.relations.outputs(rectangle)


class RememberingRunner(Runner):
    """Wraps a runner, and keeps each step's input, [tokens, hidden_size], as memory."""

    def begin(self, hidden: Tensor) -> tuple[Any, tuple]:
        return self.inner.begin(hidden), ()

    def step(self, step: Step, state: tuple) -> tuple[Any, Tensor]:
        entered = (*state[1], ops.stop_gradient(self.inner.carried(state[0])))
        after, read = self.inner.step(step, state[0])
        return (after, entered), read

    def carried(self, state: tuple) -> Tensor:
        return self.inner.carried(state[0])

    def result(self, state: tuple) -> Tensor:
        return self.inner.result(state[0])

    def report(self, state: tuple) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        outputs, losses, values = self.inner.report(state[0])
        entered = [self.rows.content(self.rows.rectangle(one)) for one in state[1]]
        return outputs | {"memory": self.rows.relations.remembered(entered)}, losses, values
