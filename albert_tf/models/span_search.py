"""The best spans of a passage, from start and end scores."""

from keras import ops


def at_most(count: int, size):
    """The smaller one, also where `size` is known only when the graph runs."""
    return min(count, size) if isinstance(size, int) else ops.minimum(count, size)


def top_spans(start_top, start_index, end_scores, count: int, max_answer_length: int):
    """The spans of the highest start + end score, no longer than allowed.

    Args:
        start_top: float32 [batch, starts], scores of the starts considered.
        start_index: int32 [batch, starts], their positions.
        end_scores: float32 [batch, starts, sequence], the score of each end given the start, or [batch, 1, sequence]
            where it does not depend on the start.
        count: spans to return, or as many as there are pairs of a start and an end where these are fewer.
        max_answer_length: in tokens, both ends included.

    Returns:
        dict of int32 start_index, end_index and float32 score, each [batch, count], best first. Where a row has
        fewer legal spans, the score is about -1e30.
    """
    starts, length = ops.shape(start_index)[1], ops.shape(end_scores)[2]
    positions = ops.arange(length, dtype="int32")[None, None, :]
    first = ops.cast(start_index, "int32")[:, :, None]
    legal = ops.logical_and(positions >= first, positions < first + max_answer_length)
    scores = ops.where(legal, start_top[:, :, None] + end_scores, -1e30)
    best, flat = ops.top_k(ops.reshape(scores, (-1, starts * length)), k=at_most(count, starts * length))
    flat = ops.cast(flat, "int32")
    start = ops.take_along_axis(ops.cast(start_index, "int32"), flat // length, axis=1)
    return {"start_index": start, "end_index": flat % length, "score": best}
