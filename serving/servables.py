"""What a server runs: a model's answers as TensorFlow functions over token ids, and over text.

Only core TensorFlow ops and, for text, the tokenizer's own, so that an unmodified tensorflow_model_server loads them.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrecords.tokenizer import Tokenizer

TOP_K = 5

Signature = tuple[Callable, dict[str, tf.TensorSpec]]

_IDS = {
    "input_ids": tf.TensorSpec([None, None], tf.int32, name="input_ids"),
    "lengths": tf.TensorSpec([None], tf.int32, name="lengths"),
}
_TEXT = {"text": tf.TensorSpec([None], tf.string, name="text")}


class IdsServable(tf.Module):
    """A pre-trained ALBERT over token ids.

    Real lengths are an input, not a mask: a server that pads a batch repeats a request's first element, which would
    turn padding of an all-ones mask into real tokens.
    """

    def __init__(self, model: keras.Model, max_seq_length: int):
        super().__init__()
        # The bare variables and a closure over the Keras model: a tracked Keras model would be stored twice.
        self.model_variables = [variable.value for variable in model.variables]
        self._encode = lambda features: model.encoder(features, training=False)
        self._masked_lm_logits = model.masked_lm_head
        self._pair_logits = model.pair_head
        self.max_seq_length = max_seq_length

    def signatures(self) -> dict[str, Signature]:
        positions = tf.TensorSpec([None, None], tf.int32, name="masked_lm_positions")
        segments = tf.TensorSpec([None, None], tf.int32, name="segment_ids")
        signatures = {
            "serving_default": (self.embed, _IDS),
            "fill_mask": (self.fill_mask, _IDS | {"masked_lm_positions": positions}),
        }
        if self._pair_logits is not None:
            signatures["sentence_order"] = (self.sentence_order, _IDS | {"segment_ids": segments})
        return signatures

    def encode(self, input_ids: tf.Tensor, lengths: tf.Tensor, segment_ids: tf.Tensor | None = None) -> dict:
        length = tf.shape(input_ids)[1]
        tf.debugging.assert_less_equal(
            length, self.max_seq_length, f"input_ids is longer than the {self.max_seq_length} tokens this model takes"
        )
        mask = tf.sequence_mask(lengths, length, tf.int32)
        # What a server padded a batch with (it repeats the first id) is made padding again.
        features = {"input_ids": input_ids * mask, "input_mask": mask}
        features["segment_ids"] = tf.zeros_like(mask) if segment_ids is None else segment_ids * mask
        return self._encode(features) | {"input_mask": mask}

    def embed(self, input_ids: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """`pooled_output`: tanh layer over [CLS]; `embedding`: mean over the tokens. Both float32 [batch, hidden]."""
        outputs = self.encode(input_ids, lengths)
        mask = tf.cast(outputs["input_mask"], tf.float32)[:, :, tf.newaxis]
        total = tf.reduce_sum(tf.cast(outputs["sequence_output"], tf.float32) * mask, axis=1)
        return {
            "embedding": total / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0),
            "pooled_output": tf.cast(outputs["pooled_output"], tf.float32),
        }

    def fill_mask(self, input_ids, lengths, masked_lm_positions) -> dict[str, tf.Tensor]:
        """The likeliest pieces at given positions: `ids` int32 and `probabilities` float32, [batch, positions, 5]."""
        sequence = self.encode(input_ids, lengths)["sequence_output"]
        gathered = tf.gather(sequence, masked_lm_positions, axis=1, batch_dims=1)
        probabilities = tf.nn.softmax(tf.cast(self._masked_lm_logits(gathered), tf.float32))
        best, ids = tf.math.top_k(probabilities, TOP_K)
        return {"ids": ids, "probabilities": best}

    def sentence_order(self, input_ids, lengths, segment_ids) -> dict[str, tf.Tensor]:
        """`probabilities` float32 [batch, 2] of the pair task's labels: 0 in order, 1 swapped (or random, for NSP)."""
        pooled = self.encode(input_ids, lengths, segment_ids)["pooled_output"]
        return {"probabilities": tf.nn.softmax(tf.cast(self._pair_logits(pooled), tf.float32))}


class TextServable(tf.Module):
    """The same answers for strings: tokenized, framed with [CLS] and [SEP], cut and padded in the graph."""

    def __init__(self, model: keras.Model, max_seq_length: int, tokenizer: Tokenizer):
        super().__init__()
        self.ids = IdsServable(model, max_seq_length)
        self.tokenize_ragged = tokenizer.in_graph()
        self.pieces = tf.constant([tokenizer.id_to_piece(index) for index in range(tokenizer.vocab_size)])
        self.tokenizer = tokenizer

    def signatures(self) -> dict[str, Signature]:
        pair = {name: tf.TensorSpec([None], tf.string, name=name) for name in ("first", "second")}
        signatures = {
            "serving_default": (self.embed, _TEXT),
            "fill_mask": (self.fill_mask, _TEXT),
            "tokenize": (self.tokenize, _TEXT),
        }
        if self.ids._pair_logits is not None:
            signatures["sentence_order"] = (self.sentence_order, pair)
        return signatures

    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.ids.embed(*self._pad(self._frame(self.tokenize_ragged(text))))

    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The text as the model sees it: `input_ids`, `pieces` (string) [batch, length] and `lengths` [batch]."""
        ids, lengths = self._pad(self._frame(self.tokenize_ragged(text)))
        return {"input_ids": ids, "lengths": lengths, "pieces": tf.gather(self.pieces, ids)}

    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """For each "[MASK]" of a text its likeliest `pieces` (string) and `probabilities`, [batch, masks, 5].

        Rows with fewer masks than the fullest are filled up with empty pieces of probability 0.
        """
        parts = tf.strings.split(text, "[MASK]")
        tokens = parts.with_values(self.tokenize_ragged(parts.values))
        mask_column = tf.fill([tf.size(parts.values), 1], tf.constant(self.tokenizer.mask_id, tf.int32))
        joined = parts.with_values(tf.concat([tokens.values, mask_column], axis=1)).merge_dims(1, 2)
        # One [MASK] after every part is one too many: the last is cut off.
        ids, lengths = self._pad(self._frame(joined[:, :-1]))
        masked = tf.equal(ids, self.tokenizer.mask_id)
        positions = tf.ragged.boolean_mask(tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids)), masked)
        found = tf.sequence_mask(positions.row_lengths())[:, :, tf.newaxis]
        best = self.ids.fill_mask(ids, lengths, positions.to_tensor())
        return {
            "pieces": tf.where(found, tf.gather(self.pieces, best["ids"]), ""),
            "probabilities": tf.where(found, best["probabilities"], 0.0),
        }

    def sentence_order(self, first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        first, second = self.tokenize_ragged(first), self.tokenize_ragged(second)
        # Both segments keep at least half of the room; a short one leaves the rest to the other.
        room = self.ids.max_seq_length - 3
        kept_second = tf.minimum(_lengths(second), tf.maximum(room // 2, room - _lengths(first)))
        kept_first = tf.minimum(_lengths(first), room - kept_second)
        first, second = _cut(first, kept_first), _cut(second, kept_second)
        left = self._frame(first)
        right = tf.concat([second, self._column(second, self.tokenizer.sep_id)], axis=1)
        segments = tf.concat([tf.zeros_like(left), tf.ones_like(right)], axis=1)
        ids, lengths = self._pad(tf.concat([left, right], axis=1))
        return self.ids.sentence_order(ids, lengths, segments.to_tensor())

    def _frame(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        tokens = tokens[:, : self.ids.max_seq_length - 2]
        return tf.concat(
            [self._column(tokens, self.tokenizer.cls_id), tokens, self._column(tokens, self.tokenizer.sep_id)], axis=1
        )

    def _column(self, like: tf.RaggedTensor, token: int) -> tf.Tensor:
        return tf.fill([like.nrows(out_type=tf.int32), 1], tf.constant(token, tf.int32))

    def _pad(self, tokens: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tokens.to_tensor(self.tokenizer.pad_id), _lengths(tokens)


def _lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)


def _cut(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Each row's first `lengths[row]` tokens."""
    return tf.RaggedTensor.from_tensor(tokens.to_tensor(), lengths=lengths)
