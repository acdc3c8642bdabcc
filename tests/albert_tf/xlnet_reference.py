"""XLNet in NumPy, written from its formulas, a row and a stream at a time: what the model is compared with.

It knows nothing of the library but the names that `checkpoints.variables.named_variables` gives weights.
"""

import math

import numpy as np


def encode_distances(distances, width):
    """Sines, then cosines, of distance * 10000**(-2i / width): float64 [..., width]."""
    angles = distances[..., None] / 10000.0 ** (2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def normalise(x, weights, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return centred / deviation * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def attend(of, heads, stream, places, content, past, row, clamp, kind, is_content):
    """One row's contexts through the output kernel: [queries, hidden].

    `of` gives weights of the step by their names, `row` the features of the row.
    """
    width, memory = stream.shape[-1], len(past)
    size, columns = width // heads, np.arange(-memory, len(content))

    def project(vectors, part):
        vectors = vectors @ of(f"{part}/kernel")
        return vectors.reshape(*vectors.shape[:-1], heads, size)

    seen = np.concatenate([past, content])
    query, key, value = project(stream, "query"), project(seen, "key"), project(seen, "value")
    distances = (places[:, None] - columns) * (-1 if row.get("is_reversed") else 1)
    distances = np.clip(distances, -clamp, clamp) if clamp else distances
    segments = np.concatenate([np.zeros(memory, int), row["segment_ids"]])
    is_other = (segments != row["segment_ids"][places][:, None]).astype(int)
    scores = np.einsum("qhs,khs->hqk", query + of("content_bias"), key)
    relative = project(encode_distances(distances, width), "relative")
    scores += np.einsum("qhs,qkhs->hqk", query + of("position_bias"), relative)
    scores += np.einsum("qhs,qkhs->hqk", query + of("segment_bias"), of("segment_embeddings")[is_other])
    allowed = np.ones((len(places), len(content)), bool) & (row.get("input_mask", 1) == 1)
    allowed &= row.get("perm_mask", np.zeros((len(content),) * 2))[places] == 0
    if kind == "uni":
        allowed &= columns[memory:] <= places[:, None]
    if is_content:
        allowed |= np.eye(len(places), dtype=bool)
    # Memory is seen by all.
    allowed = np.concatenate([np.ones((len(places), memory), bool), allowed], axis=1)
    scores = scores / math.sqrt(size) - 1e30 * ~allowed
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = exponents / exponents.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khs->qhs", shares, value).reshape(len(places), width) @ of("output/kernel")


def run(weights, features, steps, heads, clamp=0, kind="bi", untied=False):
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

    def dense(vectors, name):
        return vectors @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def embed(vectors):
        return dense(vectors, "embeddings/projection") if "embeddings/projection/kernel" in weights else vectors

    all_content, all_queries = [], []
    for number, ids in enumerate(features["input_ids"]):
        row = {name: values[number] for name, values in features.items() if name != "memory"}
        places = row.get("query_positions", np.zeros(0, int))
        content = embed(weights["embeddings/word_embeddings"][ids])
        queries = embed(np.tile(weights["embeddings/mask_embedding"], (len(places), 1)))
        memory = features.get("memory", np.zeros((len(steps), number + 1, 0, content.shape[-1])))
        states = [content]
        for step, (attention, feed_forward) in enumerate(steps):

            def of(part, name=f"attention_{attention}", step=step):
                weight = weights[f"{name}/{part}"]
                return weight[step] if untied and part.startswith(("content_", "position_", "segment_")) else weight

            streams = []
            for stream, at, is_content in ((content, np.arange(len(ids)), True), (queries, places, False)):
                seen = attend(of, heads, stream, at, content, memory[step][number], row, clamp, kind, is_content)
                stream = normalise(stream + seen, weights, f"attention_{attention}/layer_norm")
                name = f"feed_forward_{feed_forward}"
                outside = dense(gelu(dense(stream, f"{name}/intermediate")), f"{name}/output")
                streams.append(normalise(stream + outside, weights, f"{name}/layer_norm"))
            content, queries = streams
            states.append(content)
        all_content.append(states)
        all_queries.append(queries)
    return np.moveaxis(np.array(all_content), 0, 1), np.array(all_queries)


def loss(weights, queries, ids, counts):
    """sum(nll * counts) / sum(counts), of logits by the word embeddings and a bias."""
    if "embeddings/projection/kernel" in weights:
        queries = queries @ weights["embeddings/projection/kernel"].T
    logits = queries @ weights["embeddings/word_embeddings"].T + weights["masked_lm/output_bias"]
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    nll = -np.take_along_axis(log_probabilities, ids[..., None], axis=-1)[..., 0]
    return float((nll * counts).sum() / counts.sum())
