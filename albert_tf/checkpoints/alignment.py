from collections.abc import Sequence

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, changed, encoder_of, named_variables
from tfrecords.base.errors import UserError


def align_blocks(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Returns an equivalent, uncompiled model whose blocks in each group are as similar as possible.

    Later blocks of a group are matched to its first: feed-forward units and heads are permuted, and vectors within
    heads are rotated (weight matching of Git Re-Basin, arXiv:2209.04836).

    Args:
        model: any model or AlbertEncoder.
        groups: the block numbers of each group.

    Raises:
        UserError: the model has shared blocks.
    """
    config = encoder_of(model).config
    if config.sharing != "none":
        raise UserError("align_blocks is for a model whose layers share no block, such as BERT")
    values = {name: ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}
    heads, stays = config.num_attention_heads, any(one.numbers_heads for one in config.extensions)
    for group in groups:
        for block in group[1:]:
            _align_feed_forward(values, group[0], block)
            if config.spec.has_positions:
                _align_attention(values, group[0], block, heads, stays)
    return changed(model, config, lambda name, value, shape: values[name])


def best_order(likeness: np.ndarray) -> np.ndarray:
    """Returns for each row of a square matrix a column of its own, with the largest sum of values.

    Shortest augmenting paths with dual variables (Jonker and Volgenant 1987), in O(n^3).

    >>> best_order(np.array([[5.0, 4.0], [4.0, 1.0]])).tolist()
    [1, 0]
    """
    size = len(likeness)
    # Column `size` is where each path begins.
    costs = np.column_stack([-likeness.astype(np.float64), np.zeros(size)])
    of_rows, of_columns, owner = np.zeros(size + 1), np.zeros(size + 1), np.full(size + 1, -1)
    for row in range(size):
        column, distances, before = size, np.full(size + 1, np.inf), np.full(size + 1, size)
        owner[size], is_done = row, np.zeros(size + 1, bool)
        while owner[column] >= 0:
            is_done[column] = True
            reduced = costs[owner[column]] - of_rows[owner[column]] - of_columns
            closer = ~is_done & (reduced < distances)
            closer[size] = False
            distances[closer], before[closer] = reduced[closer], column
            column = int(np.argmin(np.where(is_done, np.inf, distances)[:size]))
            step = distances[column]
            of_rows[owner[is_done]] += step
            of_columns[is_done] -= step
            distances[~is_done] -= step
        while column != size:
            owner[column], column = owner[before[column]], before[column]
    order = np.empty(size, np.int64)
    order[owner[:size]] = np.arange(size)
    return order


def _align_feed_forward(values: dict[str, np.ndarray], first: int, block: int) -> None:
    own, to = f"feed_forward_{block}", f"feed_forward_{first}"
    into = [part for part in ("intermediate", "gate") if f"{own}/{part}/kernel" in values]
    likeness = values[f"{to}/output/kernel"] @ values[f"{own}/output/kernel"].T
    for part in into:
        likeness = likeness + values[f"{to}/{part}/kernel"].T @ values[f"{own}/{part}/kernel"]
    order = best_order(likeness)
    for part in into:
        for name in (f"{own}/{part}/kernel", f"{own}/{part}/bias"):
            if name in values:
                values[name] = values[name][..., order]
    values[f"{own}/output/kernel"] = values[f"{own}/output/kernel"][order]


def _align_attention(values: dict[str, np.ndarray], first: int, block: int, heads: int, stays: bool) -> None:
    to, own = (_Heads(values, f"attention_{number}", heads) for number in (first, block))
    if not stays:
        own.reorder(best_order(to.likeness(own)))
    own.turn_to(to)
    own.write(values)


class _Heads:
    # An attention layer's matrices by head: [heads, inputs, width]. Those of queries, keys and values have the bias as
    # an additional last row.
    def __init__(self, values: dict[str, np.ndarray], half: str, heads: int):
        self.half = half
        self.parts = {}
        for name in ("query", "key", "value"):
            kernel = values[f"{half}/{name}/kernel"]
            bias = values.get(f"{half}/{name}/bias", np.zeros(kernel.shape[1], "float32"))
            joined = np.concatenate([kernel, bias[None]])
            self.parts[name] = joined.reshape(len(joined), heads, -1).transpose(1, 0, 2)
        output = values[f"{half}/output/kernel"]
        self.parts["output"] = output.reshape(heads, -1, output.shape[1]).transpose(0, 2, 1)

    def likeness(self, other: "_Heads") -> np.ndarray:
        total = np.zeros((len(self.parts["query"]),) * 2)
        for one, two in (("query", "key"), ("value", "output")):
            left, right = (
                np.einsum("hia,gib->hgab", self.parts[name], other.parts[name], optimize=True) for name in (one, two)
            )
            size = np.mean([np.sum(np.square(part.parts[one])) for part in (self, other)])
            total += np.sum(left * right, axis=(2, 3)) / size
        return total

    def reorder(self, order: np.ndarray) -> None:
        self.parts = {name: part[order] for name, part in self.parts.items()}

    def turn_to(self, other: "_Heads") -> None:
        for pair in (("query", "key"), ("value", "output")):
            products = sum(self.parts[name].transpose(0, 2, 1) @ other.parts[name] for name in pair)
            left, _, right = np.linalg.svd(products)
            for name in pair:
                self.parts[name] = self.parts[name] @ (left @ right)

    def write(self, values: dict[str, np.ndarray]) -> None:
        for name in ("query", "key", "value"):
            joined = self.parts[name].transpose(1, 0, 2).reshape(self.parts[name].shape[1], -1)
            values[f"{self.half}/{name}/kernel"] = joined[:-1]
            if f"{self.half}/{name}/bias" in values:
                values[f"{self.half}/{name}/bias"] = joined[-1]
        output = self.parts["output"].transpose(0, 2, 1)
        values[f"{self.half}/output/kernel"] = output.reshape(-1, output.shape[2])
