"""A batch's distances, segments, masks, targets and memory for relative attention.

Source: XLNet (arXiv:1906.08237, sections 2.3 to 2.5), zihangdai/xlnet modeling.py.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import check_range, dropout, or_nan, site_seed

# Added to the score of a pair that must not attend (modeling.py:149), and what a float16 holds of it.
MASKED, MASKED_HALF = -1e30, -65500.0
# Larger than the steps' numbers, smaller than the random depth's.
_DISTANCE_SITE, _OUTPUT_SITE = 1 << 18, 1 << 19


def sinusoids(distances: Tensor, width: int) -> Tensor:
    """Returns float32 [n, width] for distances [n]: sines, then cosines, of distance * 10000**(-2i / width).

    >>> [round(float(number), 4) for number in sinusoids([1.0, 0.0], 4)[0]]
    [0.8415, 0.01, 0.5403, 0.9999]
    """
    frequencies = 10000.0 ** (-ops.arange(0, width, 2, dtype="float32") / width)
    angles = ops.cast(distances, "float32")[:, None] * frequencies
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def distance_table(extension: Any, width: int, length: Any, keys: Any) -> Tensor:
    """Returns sinusoids of the distances from `keys` downwards: float32 [distances, width] (modeling.py:222-243)."""
    count = keys + length if extension.attention_type == "bi" else keys + 1
    distances = keys - ops.arange(count)
    if extension.clamp_length:
        distances = ops.clip(distances, -extension.clamp_length, extension.clamp_length)
    return sinusoids(distances, width)


def shifted(scores: Tensor, keys: Any) -> Tensor:
    """Converts scores by distance [batch, heads, queries, distances] to scores by key [batch, heads, queries, keys].

    The score of query i and key j is in column j + queries - i: Transformer-XL's relative shift (modeling.py:163-172).
    """
    batch, heads, queries, count = ops.shape(scores)
    flat = ops.reshape(scores, (batch * heads, queries * count))
    flat = _parted(flat, queries, axis=1)[1]
    rows = ops.reshape(flat, (batch, heads, queries, count - 1))
    return _parted(rows, keys, axis=3)[0]


def _parted(values: Tensor, first: Any, axis: int) -> list[Tensor]:
    # In TensorFlow, the gradient of slices is slower.
    if isinstance(first, int) and values.shape[axis] is not None:
        return ops.split(values, [first], axis=axis)
    sizes, parts = ops.shape(values), []
    for start, count in ((0, first), (first, sizes[axis] - first)):
        starts = [start if place == axis else 0 for place in range(len(sizes))]
        parts.append(ops.slice(values, starts, [count if place == axis else size for place, size in enumerate(sizes)]))
    return parts


class Relations:
    """A batch's masks, segments and distances, computed once for all steps of the encoder.

    Content tokens may be followed by queries, which know a target's position but not its word. Queries attend to
    content; no token attends to queries (XLNet's query stream, section 2.3).

    Args:
        features: input_ids, input_mask and segment_ids as for every encoder, and optionally
            perm_mask [batch, length, length], 1 where token i must not attend to j;
            query_positions, int32 [batch, queries], the positions of targets; or target_mapping [batch, queries,
            length], the same in one-hot form, a row of zeros for no target;
            memory [steps, batch, n, hidden_size], inputs of each step in the preceding text; memory has segment 0;
            is_reversed [batch], 1 for rows of reversed text: their distances are negated.

    Attributes:
        keys: number of content and memory tokens.
        bias: [batch or 1, 1, length + queries, keys], added to scores; None if all may attend.
        differs: [batch, 1, length + queries, keys], 1 for pairs of different segments; None without segment_ids.
        distances: sinusoids [1, distances, hidden_size]; with is_reversed [2, ...].
    """

    def __init__(self, extension: Any, config: Any, features: dict[str, Any], dtype: str, seed: Tensor):
        self.extension, self.config = extension, config
        batch, self.length = ops.shape(features["input_ids"])
        self.memory, past = features.get("memory"), 0
        if self.memory is not None:
            self.memory, past = ops.stop_gradient(ops.cast(self.memory, dtype)), ops.shape(self.memory)[2]
        self.keys = self.length + past
        self._targets, self._weights = _targets(features)
        if self._targets is not None:
            check_range(self._targets, self.length, "query_positions")
        self.queries = None if self._targets is None else ops.shape(self._targets)[1]
        self.bias, self.differs = None, None
        if (blocked := self._blocked(features, past)) is not None:
            self.bias = ops.cast(blocked, dtype) * (MASKED_HALF if dtype == "float16" else MASKED)
        if features.get("segment_ids") is not None:
            segments = features["segment_ids"]
            of_keys = ops.concatenate([ops.zeros((batch, past), segments.dtype), segments], axis=1)
            differs = self._with_queries(ops.not_equal(segments[:, :, None], of_keys[:, None, :]))
            self.differs = ops.cast(differs, dtype)[:, None]
        table = distance_table(extension, config.hidden_size, self.length, self.keys)
        tables, self._is_reversed = table[None], features.get("is_reversed")
        if self._is_reversed is not None:
            # The sine of the negated distance.
            sines, cosines = ops.split(table, 2, axis=-1)
            tables = ops.stack([table, ops.concatenate([-sines, cosines], axis=-1)])
        # One mask for all rows, where the original draws one for each: so W_r is applied once.
        self.distances = dropout(ops.cast(tables, dtype), config.hidden_dropout_prob, site_seed(seed, _DISTANCE_SITE))
        self._seed = seed

    def content(self, rows: Tensor) -> Tensor:
        return rows if self._targets is None else rows[:, : self.length]

    def by_row(self, of_distances: Tensor) -> Tensor:
        if self._is_reversed is None:
            return of_distances
        return ops.take(of_distances, ops.reshape(ops.cast(self._is_reversed, "int32"), (-1,)), axis=0)

    def scores(self, of_distances: Tensor) -> Tensor:
        """Returns scores by key, [batch, heads, length + queries, keys], from scores by distance."""
        if self._targets is None:
            return shifted(of_distances, self.keys)
        content, queries = _parted(of_distances, self.length, axis=2)
        batch, heads, count, distances = ops.shape(queries)
        first = (self.length - self._targets)[:, None, :, None]
        # `minimum` is for "uni" attention, whose columns after a target are masked.
        columns = ops.minimum(first + ops.arange(self.keys, dtype="int32"), distances - 1)
        starts = distances * ops.reshape(ops.arange(batch * heads * count, dtype="int32"), (batch, heads, count, 1))
        queries = ops.take(ops.reshape(queries, (-1,)), starts + columns)
        return ops.concatenate([shifted(content, self.keys), queries], axis=2)

    def weighed(self, contexts: Tensor) -> Tensor:
        if self._weights is None:
            return contexts
        weights = ops.concatenate([ops.ones_like(contexts[:, : self.length, 0]), self._weights], axis=1)
        return contexts * ops.cast(weights, contexts.dtype)[:, :, None]

    def outputs(self, rows: Tensor) -> dict[str, Tensor]:
        rows = dropout(rows, self.config.hidden_dropout_prob, site_seed(self._seed, _OUTPUT_SITE))
        streams = {"sequence_output": self.content(rows)}
        if self._targets is None:
            return streams
        queries = or_nan(rows[:, self.length :], self._targets[:, :, None], self.length)
        return streams | {"query_output": queries}

    def remembered(self, states: Sequence[Tensor]) -> Tensor:
        """Returns the memory for the next rows, [steps, batch, memory, hidden_size] (modeling.py:189-202)."""
        recent = ops.stop_gradient(ops.stack(list(states)))
        if self.extension.reuse_length:
            recent = recent[:, :, : self.extension.reuse_length]
        if self.memory is not None:
            recent = ops.concatenate([self.memory, recent], axis=2)
        return recent[:, :, -self.extension.memory_length :]

    def _with_queries(self, of_content: Tensor) -> Tensor:
        if self._targets is None:
            return of_content
        return ops.concatenate([of_content, self._of_targets(of_content)], axis=1)

    def _blocked(self, features: dict[str, Any], past: Any) -> Tensor | None:
        # A content token may always attend to itself, a query to its position only if the masks allow it.
        batch, length = ops.shape(features["input_ids"])
        blocked = None
        if "input_mask" in features:
            blocked = ops.logical_not(ops.cast(features["input_mask"], "bool"))[:, None, :]
        if "perm_mask" in features:
            permuted = ops.cast(features["perm_mask"], "float32") > 0
            blocked = permuted if blocked is None else ops.logical_or(permuted, blocked)
        places = ops.arange(length)
        if self.extension.attention_type == "uni":
            later = (places[None, :] > places[:, None])[None]
            blocked = later if blocked is None else ops.logical_or(later, blocked)
        if blocked is None:
            return None
        others = (places[None, :] != places[:, None])[None]
        rows = ops.logical_and(blocked, others)
        if self._targets is not None:
            blocked, rows = (ops.broadcast_to(pairs, (batch, length, length)) for pairs in (blocked, rows))
            rows = ops.concatenate([rows, self._of_targets(blocked)], axis=1)
        if self.memory is not None:
            seen = ops.zeros((*ops.shape(rows)[:2], past), "bool")
            rows = ops.concatenate([seen, rows], axis=2)
        return rows[:, None]

    def _of_targets(self, of_content: Tensor) -> Tensor:
        return ops.take_along_axis(of_content, self._targets[:, :, None], axis=1)


def _targets(features: dict[str, Any]) -> tuple[Tensor | None, Tensor | None]:
    mapping = features.get("target_mapping")
    if mapping is not None:
        return ops.cast(ops.argmax(mapping, axis=-1), "int32"), ops.max(ops.cast(mapping, "float32"), axis=-1)
    positions = features.get("query_positions")
    return (None if positions is None else ops.cast(positions, "int32")), None
