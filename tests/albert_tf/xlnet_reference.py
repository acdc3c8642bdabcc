"""XLNet in NumPy, written from its formulas, one pair of a query and a key at a time: what the model is compared with.

It knows nothing of the library but the names that `checkpoints.variables.named_variables` gives weights.
"""

import math

import numpy as np


def encode_distance(distance: int, width: int) -> np.ndarray:
    """Sines, then cosines, of distance * 10000**(-2i / width): float64 [width]."""
    angles = [distance / 10000 ** (2 * i / width) for i in range(width // 2)]
    return np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def normalise(x: np.ndarray, weights: dict, name: str) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return centred / deviation * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def may_attend(features: dict, row: int, query: int, key: int, is_content: bool, kind: str) -> bool:
    """Of columns of one row; memory is seen by all."""
    if is_content and query == key:
        return True
    seen = "input_mask" not in features or features["input_mask"][row, key] == 1
    seen = seen and ("perm_mask" not in features or features["perm_mask"][row, query, key] == 0)
    return seen and (kind == "bi" or key <= query)


def attend(weights, name, heads, stream, places, content, past, features, row, options, is_content, own):
    """One row's contexts through the output kernel: [queries, hidden]."""
    width = stream.shape[-1]
    size = width // heads
    memory = 0 if past is None else len(past)
    keys_of = content if past is None else np.concatenate([past, content])
    kernel = lambda part: weights[f"{name}/{part}/kernel"]  # noqa: E731
    split = lambda rows: rows.reshape(len(rows), heads, size)  # noqa: E731
    queries, keys = split(stream @ kernel("query")), split(keys_of @ kernel("key"))
    values = split(keys_of @ kernel("value"))
    bias = {part: weights[f"{name}/{part}"] for part in ("content_bias", "position_bias", "segment_bias")}
    bias = {part: value if own is None else value[own] for part, value in bias.items()}
    segments = weights[f"{name}/segment_embeddings"]
    segments = segments if own is None else segments[own]
    contexts = np.zeros((len(places), heads, size))
    for q, place in enumerate(places):
        scores = np.zeros((heads, len(keys_of)))
        for k in range(len(keys_of)):
            distance = place - (k - memory)
            if features.get("is_reversed", np.zeros(row + 1))[row]:
                distance = -distance
            if options["clamp"]:
                distance = max(-options["clamp"], min(options["clamp"], distance))
            of_distance = split((encode_distance(distance, width) @ kernel("relative"))[None])[0]
            segment = 0 if k < memory else features["segment_ids"][row, k - memory]
            of_segment = segments[int(segment != features["segment_ids"][row, place])]
            for head in range(heads):
                vector = queries[q, head]
                scores[head, k] = (
                    (vector + bias["content_bias"][head]) @ keys[k, head]
                    + (vector + bias["position_bias"][head]) @ of_distance[head]
                    + (vector + bias["segment_bias"][head]) @ of_segment[head]
                ) / math.sqrt(size)
            if k >= memory and not may_attend(features, row, place, k - memory, is_content, options["kind"]):
                scores[:, k] -= 1e30
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        contexts[q] = np.einsum("hk,khd->hd", probabilities, values)
    return contexts.reshape(len(places), width) @ kernel("output")


def run(weights: dict, features: dict, steps: list, heads: int, clamp: int = 0, kind: str = "bi", untied: bool = False):
    """Runs the model.

    Args:
        weights: float64 arrays by the library's names.
        features: NumPy arrays; memory [steps, batch, n, hidden]; query_positions [batch, targets].
        steps: (number of the attention half, number of the feed-forward half), one for each step.
        heads, clamp, kind: of the attention.
        untied: whether biases have a row for each step.

    Returns:
        content [steps + 1, batch, length, hidden] and queries [batch, targets, hidden].
    """
    options = {"clamp": clamp, "kind": kind}

    def embed(vectors):
        if "embeddings/projection/kernel" not in weights:
            return vectors
        return vectors @ weights["embeddings/projection/kernel"] + weights["embeddings/projection/bias"]

    all_content, all_queries = [], []
    for row, ids in enumerate(features["input_ids"]):
        places = list(features["query_positions"][row]) if "query_positions" in features else []
        content = embed(weights["embeddings/word_embeddings"][ids])
        queries = embed(np.tile(weights["embeddings/mask_embedding"], (len(places), 1)))
        states = [content]
        for number, (attention, feed_forward) in enumerate(steps):
            past = features["memory"][number][row] if "memory" in features else None
            streams = []
            for stream, at, is_content in ((content, list(range(len(ids))), True), (queries, places, False)):
                name, own = f"attention_{attention}", number if untied else None
                seen = attend(weights, name, heads, stream, at, content, past, features, row, options, is_content, own)
                stream = normalise(stream + seen, weights, f"{name}/layer_norm")
                name = f"feed_forward_{feed_forward}"
                inside = gelu(stream @ weights[f"{name}/intermediate/kernel"] + weights[f"{name}/intermediate/bias"])
                outside = inside @ weights[f"{name}/output/kernel"] + weights[f"{name}/output/bias"]
                streams.append(normalise(stream + outside, weights, f"{name}/layer_norm"))
            content, queries = streams
            states.append(content)
        all_content.append(states)
        all_queries.append(queries)
    return np.moveaxis(np.array(all_content), 0, 1), np.array(all_queries)


def loss(weights: dict, queries: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> float:
    """sum(nll * counts) / sum(counts), of logits by the word embeddings and a bias."""
    if "embeddings/projection/kernel" in weights:
        queries = queries @ weights["embeddings/projection/kernel"].T
    logits = queries @ weights["embeddings/word_embeddings"].T + weights["masked_lm/output_bias"]
    logits = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    nll = -np.take_along_axis(log_probabilities, ids[..., None], axis=-1)[..., 0]
    return float((nll * counts).sum() / counts.sum())
