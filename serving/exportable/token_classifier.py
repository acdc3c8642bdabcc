"""A class for each token, and in texts for each word."""

import tensorflow as tf

from serving.exportable.base import Servable, ServableOptions
from serving.exportable.classifier import labels_of
from serving.exportable.rows import Rows
from tfrecords.tokenizers.words_in_graph import split_words


class TokenClassifierServable(Servable):
    """AlbertTokenClassifier.

    Over ids: `labels` string [batch, length], `logits` and `probabilities` float32 [batch, length, classes]; "" and 0
    at padding. Over text: the same for words in place of tokens (a word is what stands between spaces, and its class
    that of its first piece), with `words` string and `starts`, `ends` int32 [batch, words], in characters. A word
    beyond the longest row has no label.
    """

    exit_kind = "tagging"

    def __init__(self, model, options: ServableOptions):
        super().__init__(model, options)
        self.head = lambda vectors: model.head(vectors)
        self.labels = labels_of(options, model.num_classes)
        # Tagging is of words in one text, whatever the task calls its columns.
        self.takes_pairs = False

    def answer(self, rows: Rows):
        return self.outputs(self.head(self.encode(rows)["sequence_output"]), rows)

    def outputs(self, logits: tf.Tensor, rows: Rows):
        return self._named(tf.cast(logits, tf.float32), rows.mask > 0)

    def by_text(self, text):
        return self._by_words(text, self.answer)

    def early_by_text(self, text, threshold):
        return self._by_words(text, lambda rows: self.answer_early(rows, threshold))

    def text_rows(self, text):
        pieces, _ = self._pieces(text)
        return self.framer.single(pieces.merge_dims(1, 2))

    def _pieces(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tuple]:
        """Ids [batch, words, pieces], each word tokenized by itself, and what `split_words` gives."""
        found = split_words(text)
        words = found[0]
        pieces = self.framer.in_graph(words.values)
        # As in fine-tuning, a word of which the tokenizer leaves nothing still has a place for its label.
        nothing = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(nothing)], tf.constant(self.framer.tokenizer.unk_id))
        filled = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, nothing, validate=False)], axis=1)
        return words.with_values(filled), found

    def _by_words(self, text: tf.Tensor, answer) -> dict[str, tf.Tensor]:
        pieces, (words, starts, ends) = self._pieces(text)
        answers = answer(self.framer.single(pieces.merge_dims(1, 2)))
        counts = tf.cast(pieces.with_values(pieces.values.row_lengths()).to_tensor(), tf.int32)
        # Behind [CLS] a word begins where all words before it end.
        before = tf.math.cumsum(counts, axis=1, exclusive=True) + 1
        known = (counts > 0) & (before < self.options.max_seq_length - 1)
        first = tf.where(known, before, 0)
        logits = tf.gather(answers["logits"], first, axis=1, batch_dims=1)
        named = self._named(logits, known) | {
            "words": words.to_tensor(""),
            "starts": starts.to_tensor(),
            "ends": ends.to_tensor(),
        }
        return named | {name: value for name, value in answers.items() if name == "steps"}

    def _named(self, logits: tf.Tensor, known: tf.Tensor) -> dict[str, tf.Tensor]:
        names = tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1))
        present = tf.cast(known, tf.float32)[:, :, tf.newaxis]
        return {
            "labels": tf.where(known, names, ""),
            "logits": logits * present,
            "probabilities": tf.nn.softmax(logits) * present,
        }
