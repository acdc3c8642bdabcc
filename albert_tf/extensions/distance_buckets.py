"""Distance buckets: each attention score gets a bias for how far the key is from the query, and on which side.

Source: T5 (arXiv:1910.10683, section 2.1), arXiv:2004.09297 (transformers, `relative_position_bucket`).
"""

import dataclasses
import math
from typing import Any

import numpy as np
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config.extension import Extension, Weight, WeightLayer
from albert_tf.config.registry import Spec, Weights
from albert_tf.layers.block import Step

# Larger distances are in the last bucket of their side.
MOST = 128


@dataclasses.dataclass(frozen=True)
class DistanceBuckets(Extension):
    """Adds table[bucket of the distance, head] to attention scores.

    All steps share the table, [buckets, heads]. Distances count columns of a row, whatever position_ids are.
    There are no segment embeddings.

    Attributes:
        relative_attention_num_buckets: number of buckets, half of them for keys after their query; 0 for none.
    """

    name, numbers_heads = "distance_buckets", True
    published = ("relative_attention_num_buckets",)
    limits = {
        "relative_attention_num_buckets": (
            "a multiple of 4, at most 65536",
            lambda value: value % 4 == 0 and value <= 2**16,
        )
    }
    relative_attention_num_buckets: int = 0

    def conflicts(self) -> dict[str, str]:
        return {
            "position_type": "rotary and relative positions score distances already",
            "attention_window": "the scores of a window are not of whole rows",
        }

    def spec(self, spec: Spec) -> Spec:
        return spec._replace(has_types=False)

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if owner != "encoder":
            return []
        shape = (self.relative_attention_num_buckets, config.num_attention_heads)
        weights = {"table": Weight(shape, "normal", autocast=False)}
        # "bias" in the layer's name excludes it from weight decay, as in transformers.
        return [WeightLayer("distance_buckets", "distance_bias", "depth_layers/distance_buckets", weights)]

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        rows.add_feature("columns", rows.columns())
        return rows

    def attention(self, attention: Any, weights: Weights) -> Any:
        plain = attention.score

        def score(attention: Any, query: Tensor, key: Tensor, pairs: Any, step: Step) -> Tensor:
            scores = plain(attention, query, key, pairs, step)
            # Within the step, although constant: recomputation finds no gradient elsewhere.
            return scores + ops.cast(self.bias(weights["table"], *pairs.features["columns"]), scores.dtype)

        return dataclasses.replace(attention, score=score)

    def bias(self, table: Tensor, of_queries: Tensor, of_keys: Tensor) -> Tensor:
        away = ops.clip(ops.expand_dims(of_keys, 1) - ops.expand_dims(of_queries, 2), -MOST, MOST) + MOST
        bucket = ops.take(ops.convert_to_tensor(buckets(self.relative_attention_num_buckets)), away)
        by_head = ops.take(ops.transpose(ops.convert_to_tensor(table)), bucket, axis=1)
        return ops.swapaxes(by_head, 0, 1)


def buckets(count: int) -> np.ndarray:
    """Returns the bucket of each distance from -MOST to MOST, int32 [2 * MOST + 1].

    Half of the buckets on each side hold one distance each; the others hold wider ranges, up to MOST.

    >>> buckets(32)[[MOST, MOST - 1, MOST + 1, MOST + 7, MOST + 8, MOST + 12, MOST + 128]].tolist()
    [0, 1, 17, 23, 24, 25, 31]
    """
    # In NumPy, so that all backends round alike.
    half = count // 2
    exact, away = half // 2, np.arange(-MOST, MOST + 1)
    size = np.abs(away)
    scaled = np.log(np.maximum(size, 1).astype("float32") / exact) / np.float32(math.log(MOST / exact)) * (half - exact)
    far = np.minimum(exact + scaled.astype("int32"), half - 1)
    return (np.where(away > 0, half, 0) + np.where(size < exact, size, far)).astype("int32")
