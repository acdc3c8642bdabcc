"""Texts as rows: tokenized, framed with [CLS] and [SEP], cut and padded, all in the graph."""

import tensorflow as tf

from serving.exportable.rows import Rows
from tfrecords.tokenizers.base import Tokenizer


class Framer(tf.Module):
    """Makes rows of at most `max_seq_length` tokens of strings [batch]."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__()
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.in_graph = tokenizer.in_graph()
        self.pieces = tf.constant(tokenizer.pieces)

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Ids of several string tensors [batch], all in one pass: a tokenizer is a large graph."""
        tokens = self.in_graph(tf.concat(texts, axis=0))
        ends = tf.math.cumsum(tf.stack([tf.size(one) for one in texts]))
        starts = tf.concat([[0], ends[:-1]], axis=0)
        return [tokens[starts[i] : ends[i]] for i in range(len(texts))]

    def single(self, tokens: tf.RaggedTensor) -> Rows:
        """[CLS] tokens [SEP]; what does not fit is cut off."""
        return self._rows(self.enclose(tokens[:, : self.max_seq_length - 2]))

    def pair(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> Rows:
        """[CLS] first [SEP] second [SEP], cut at the end of the longer one."""
        # Both segments keep at least half of the room; a short one leaves the rest to the other.
        room = self.max_seq_length - 3
        kept_second = tf.minimum(_lengths(second), tf.maximum(room // 2, room - _lengths(first)))
        return self.join(cut(first, tf.minimum(_lengths(first), room - kept_second)), cut(second, kept_second))

    def join(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> Rows:
        """[CLS] first [SEP] second [SEP], uncut."""
        left, right = self.enclose(first), self.end(second)
        segments = tf.concat([tf.zeros_like(left), tf.ones_like(right)], axis=1)
        return self._rows(tf.concat([left, right], axis=1), segments)

    def describe(self, rows: Rows) -> dict[str, tf.Tensor]:
        """Rows as the model sees them: `input_ids`, `segment_ids`, `pieces` [batch, length] and `lengths` [batch]."""
        pieces = tf.where(rows.mask > 0, tf.gather(self.pieces, rows.input_ids), "")
        return {
            "input_ids": rows.input_ids,
            "lengths": rows.lengths,
            "pieces": pieces,
            "segment_ids": rows.segment_ids,
        }

    def enclose(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        return tf.concat([self._column(tokens, self.tokenizer.cls_id), self.end(tokens)], axis=1)

    def end(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        return tf.concat([tokens, self._column(tokens, self.tokenizer.sep_id)], axis=1)

    def _column(self, like: tf.RaggedTensor, token: int) -> tf.Tensor:
        return tf.fill([like.nrows(out_type=tf.int32), 1], tf.constant(token, tf.int32))

    def _rows(self, tokens: tf.RaggedTensor, segments: tf.RaggedTensor | None = None) -> Rows:
        return Rows.of_ragged(tokens, segments, self.tokenizer.pad_id)


def cut(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Each row's first `lengths[row]` tokens."""
    return tf.RaggedTensor.from_tensor(tokens.to_tensor(), lengths=lengths)


def _lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)
