"""`masking` as TensorFlow operations on whole batches: what the reader does anew every epoch.

The same rule and the same draws: for equal keys it masks exactly what `masking.mask_examples` masks.
"""

import numpy as np
import tensorflow as tf

from tfrecords.masking import FATE, KEEP_SHARE, LENGTH, MASK_SHARE, ORDER, PIECE, MaskingRule, MaskingVocabulary

# No tensor: TensorFlow must not have begun to compute when a strategy for several workers is made.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: tf.Tensor) -> tf.Tensor:
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(30, tf.uint64)))
    x *= tf.constant(0xBF58476D1CE4E5B9, tf.uint64)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(27, tf.uint64)))
    x *= tf.constant(0x94D049BB133111EB, tf.uint64)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(31, tf.uint64)))


def derive(*parts: tf.Tensor) -> tf.Tensor:
    """`randomness.derive` in the graph: int64 tensors to uint64 keys, by broadcasting."""
    key = tf.constant(0, tf.uint64)
    for part in parts:
        key = _mix(key + tf.bitcast(tf.cast(part, tf.int64), tf.uint64) + _GAMMA)
    return key


def _draw(keys: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    return _mix(keys + (tf.cast(counters, tf.uint64) + tf.constant(1, tf.uint64)) * _GAMMA)


def _unit(bits: tf.Tensor) -> tf.Tensor:
    high = tf.bitwise.right_shift(bits, tf.constant(11, tf.uint64))
    return tf.cast(high, tf.float64) * (1.0 / 9007199254740992.0)


def _below(bits: tf.Tensor, bound: int) -> tf.Tensor:
    shift = tf.constant(32, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(tf.bitwise.right_shift(bits, shift) * bound, shift), tf.int32)


def mask_batch(
    input_ids: tf.Tensor,
    lengths: tf.Tensor,
    word_starts: tf.Tensor,
    keys: tf.Tensor,
    rule: MaskingRule,
    vocabulary: MaskingVocabulary,
) -> dict[str, tf.Tensor]:
    """Masks a batch of examples.

    input_ids: int32 [batch, sequence]; lengths: int32 [batch]; word_starts: bool [batch, sequence]; keys: uint64
    [batch]. Returns input_ids masked, and masked_lm_positions, masked_lm_ids (int32) and masked_lm_weights (float32),
    each [batch, max_predictions], zeros behind what was masked.
    """
    sequence = tf.shape(input_ids)[1]
    columns = tf.range(sequence)
    is_text = (columns < lengths[:, None]) & (input_ids != vocabulary.cls_id) & (input_ids != vocabulary.sep_id)
    after_text = tf.pad(is_text[:, :-1], [[0, 0], [1, 0]])
    begins_word = is_text & ((word_starts if rule.whole_words else True) | ~after_text)
    begins, ends = _spans(is_text, begins_word, rule, keys)
    # float64 and half to even, as Python's round.
    share = tf.cast(tf.round(tf.cast(lengths, tf.float64) * rule.probability), tf.int32)
    budget = tf.minimum(rule.max_predictions, tf.maximum(1, share)) if rule.probability > 0 else tf.zeros_like(share)
    taken = _take(begins, ends, budget, sequence)
    return _replace(input_ids, taken, keys, rule.max_predictions, vocabulary)


def _spans(is_text, begins_word, rule, keys):
    """The spans to try, in the order to try them: begins int32 [batch, words] and ends int32 [max_ngram, batch, words].

    ends[k] is where a span of at most k + 1 words ends, for k below the number of words drawn; beyond, it is the begin,
    as it is in the padding.
    """
    where = tf.cast(tf.where(begins_word), tf.int32)
    rows, begins = where[:, 0], where[:, 1]
    words = tf.shape(begins)[0]
    word_of_token = tf.cumsum(tf.cast(tf.reshape(begins_word, [-1]), tf.int32)) - 1
    sizes = tf.math.bincount(tf.boolean_mask(word_of_token, tf.reshape(is_text, [-1])), minlength=words)
    own_keys = tf.gather(keys, rows)
    uniform = _unit(_draw(own_keys, LENGTH + begins))
    drawn = tf.searchsorted(tf.constant(rule.ngram_thresholds), uniform, side="right")
    end = begins + sizes
    spans, last_end = [], end
    joined = tf.fill([words], True)
    for n in range(rule.max_ngram):
        if n:
            follows = _shift(begins, n) == last_end
            joined &= follows & (_shift(rows, n) == rows) & (drawn >= n)
            last_end = tf.where(joined, _shift(end, n), last_end)
        spans.append(tf.where(joined, last_end, begins))
    order = tf.bitcast(
        tf.bitwise.bitwise_xor(_draw(own_keys, ORDER + begins), tf.constant(1 << 63, tf.uint64)), tf.int64
    )
    counts = tf.math.bincount(rows, minlength=tf.shape(keys)[0])
    stacked = tf.RaggedTensor.from_row_lengths(tf.stack([begins, *spans], axis=1), counts).to_tensor()
    ranks = tf.argsort(tf.RaggedTensor.from_row_lengths(order, counts).to_tensor(tf.int64.max), stable=True)
    stacked = tf.gather(stacked, ranks, batch_dims=1)
    return stacked[:, :, 0], tf.transpose(stacked[:, :, 1:], [2, 0, 1])


def _shift(values: tf.Tensor, n: int) -> tf.Tensor:
    """values[i + n] at i; -1 behind the end."""
    return tf.concat([values[n:], tf.fill([tf.minimum(n, tf.shape(values)[0])], -1)], axis=0)


def _take(begins, ends, budget, sequence):
    """Tries the spans rank by rank, all rows of the batch at once. Returns bool [batch, sequence]."""
    columns = tf.range(sequence)
    words = tf.shape(begins)[1]

    def some_left(rank, left, _taken):
        return (rank < words) & tf.reduce_any(left > 0)

    def try_rank(rank, left, taken):
        begin = begins[:, rank]
        sizes = ends[:, :, rank] - begin
        # With the longest that fits: fewer words where all that were drawn are too many.
        size = tf.reduce_max(tf.where(sizes <= left, sizes, 0), axis=0)
        span = (columns >= begin[:, None]) & (columns < (begin + size)[:, None])
        free = ~tf.reduce_any(span & taken, axis=1)
        size = tf.where(free, size, 0)
        return rank + 1, left - size, taken | (span & free[:, None])

    taken = tf.zeros([tf.shape(begins)[0], sequence], tf.bool)
    return tf.while_loop(some_left, try_rank, [0, budget, taken])[2]


def _replace(input_ids, taken, keys, max_predictions, vocabulary):
    batch, sequence = tf.shape(input_ids)[0], tf.shape(input_ids)[1]
    columns = tf.where(taken, tf.range(sequence), sequence)
    padded = tf.pad(columns, [[0, 0], [0, tf.maximum(0, max_predictions - sequence)]], constant_values=sequence)
    positions = -tf.math.top_k(-padded, max_predictions).values
    present = positions < sequence
    positions = tf.where(present, positions, 0)
    originals = tf.gather(input_ids, positions, batch_dims=1)
    fate = _unit(_draw(keys[:, None], FATE + positions))
    pieces = tf.gather(
        tf.constant(vocabulary.ordinary_ids),
        _below(_draw(keys[:, None], PIECE + positions), len(vocabulary.ordinary_ids)),
    )
    replaced = tf.where(
        fate < MASK_SHARE, vocabulary.mask_id, tf.where(fate < MASK_SHARE + KEEP_SHARE, originals, pieces)
    )
    rows = tf.broadcast_to(tf.range(batch)[:, None], tf.shape(positions))
    indices = tf.boolean_mask(tf.stack([rows, positions], axis=-1), present)
    return {
        "input_ids": tf.tensor_scatter_nd_update(input_ids, indices, tf.boolean_mask(replaced, present)),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(present, originals, 0),
        "masked_lm_weights": tf.cast(present, tf.float32),
    }
