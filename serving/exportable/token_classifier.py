"""A class for each token, and in texts for each word."""

import tensorflow as tf

from serving.exportable.base import Servable, ServableOptions
from serving.exportable.classifier import labels_of
from tfrecords.framing import TokenBatch
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

    def answer(self, rows: TokenBatch):
        return self.outputs(self.head(self.encode(rows)["sequence_output"]), rows)

    def outputs(self, logits: tf.Tensor, rows: TokenBatch):
        return self._named(tf.cast(logits, tf.float32), rows.mask > 0)

    def by_text(self, text):
        return self._by_words(text, self.answer)

    def early_by_text(self, text, threshold):
        return self._by_words(text, lambda rows: self.answer_early(rows, threshold))

    def text_rows(self, text):
        return self._rows(split_words(text)[0])[0]

    def _rows(self, words: tf.RaggedTensor) -> tuple[TokenBatch, tf.RaggedTensor]:
        rows, columns = self.framer.words(words.with_values(self.framer.in_graph(words.values)))
        return rows.padded(), columns

    def _by_words(self, text: tf.Tensor, answer) -> dict[str, tf.Tensor]:
        words, starts, ends = split_words(text)
        rows, columns = self._rows(words)
        answers = answer(rows)
        columns = columns.to_tensor()
        known = (columns > 0) & (columns < self.options.max_seq_length - 1)
        logits = tf.gather(answers["logits"], tf.where(known, columns, 0), axis=1, batch_dims=1)
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
