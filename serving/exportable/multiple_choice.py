from typing import NamedTuple

import tensorflow as tf

from albert_tf.models.classifiers import AlbertMultipleChoice
from serving.exportable.base import NO_ANSWER
from serving.exportable.classifiers import DenseHeadExportable
from serving.exportable.inputs import InputFormat, specs
from serving.exportable.samples import as_array, model_features, row_of
from serving.lite.description import Answer
from tfrecords.reading.framing import TokenBatch, encode


class Choices(NamedTuple):
    """Questions with their choices; `batch` has a row for each choice, `present` is False for missing ones."""

    batch: TokenBatch
    present: tf.Tensor
    texts: tf.Tensor | None = None


class MultipleChoiceExportable(DenseHeadExportable, model=AlbertMultipleChoice):
    """Exports an AlbertMultipleChoice: `logits`, `probabilities` float32 [batch, choices] and `choice` int32 [batch].

    `choice` is the best one's number; over text, `answer` string [batch] is its text. The number of choices is
    fixed, since a batching server would pad shorter lists with copies. Empty choices get probability 0 and the logit
    NO_ANSWER.
    """

    rows_are_answers = False

    def ids_signatures(self):
        def by_mask(inputs):
            # The first position alone, since a server may have padded after it; unless padding may be in front.
            mask = inputs["input_mask"]
            return tf.reduce_max(mask, axis=-1) if self.encoder.config.spec.last_token else mask[..., 0]

        formats = {
            "serving_default": self._of_choices(self.ids_formats.pair, lambda inputs: inputs["lengths"]),
            "masked": self._of_choices(self.ids_formats.masked, by_mask),
            "int64": self._of_choices(self.ids_formats.int64, by_mask),
        }
        return {name: format_.to(self.answer) for name, format_ in formats.items()}

    def _of_choices(self, rows_of: InputFormat, sizes) -> InputFormat:
        shapes = {name: (None, self.options.num_choices, *spec.shape[1:]) for name, spec in rows_of.inputs.items()}
        inputs = {name: tf.TensorSpec(shapes[name], spec.dtype, name=name) for name, spec in rows_of.inputs.items()}

        def read(**tensors):
            rows = {name: _flat(value) for name, value in tensors.items()}
            if "lengths" in rows:
                # A missing choice has a row, too.
                rows["lengths"] = tf.where(rows["lengths"] == 0, 1, rows["lengths"])
            return Choices(rows_of.read(**rows), sizes(tensors) > 0)

        return InputFormat(inputs, read)

    def text_signatures(self):
        texts = specs("context", "question") | specs("choices", shape=(None, self.options.num_choices))
        return {
            "serving_default": InputFormat(texts, self.choices).to(self.answer),
            "tokenize": InputFormat(specs("text"), self.single).to(self.framer.describe),
        }

    def choices(self, context: tf.Tensor, question: tf.Tensor, choices: tf.Tensor) -> Choices:
        """Converts contexts, questions (strings [batch]) and choices (strings [batch, choices]) to rows.

        A row is [CLS] context [SEP] question and choice [SEP]; the choice replaces each "_" in the question, or follows
        it (google-research/albert race_utils.py). Question and choice keep their last 128 tokens.
        """
        contexts, answers = self.framer.tokenize(context, tf.reshape(_fill_in(question, choices), [-1]))
        contexts = tf.gather(contexts, tf.repeat(tf.range(tf.size(context)), self.options.num_choices))
        rows, present = self.framer.choices(contexts, answers), choices != ""

        def of_question(tokens: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.where(present, tf.reshape(tokens, tf.shape(choices)), 0), axis=1)

        total = of_question(contexts.row_lengths() + answers.row_lengths())
        kept = of_question(rows.input_ids.row_lengths() - self.framer.special_tokens(2))
        self.note_counts(total, kept, of_question(self.unknown(rows.input_ids)))
        return Choices(rows.padded(), present, choices)

    def answer(self, choices: Choices):
        logits = tf.reshape(self.logits(choices.batch), [-1, self.options.num_choices])
        logits = tf.where(choices.present, logits, NO_ANSWER)
        choice = tf.argmax(logits, axis=1, output_type=tf.int32)
        probabilities = tf.nn.softmax(logits) * tf.cast(choices.present, tf.float32)
        answers = {"choice": choice, "logits": logits, "probabilities": probabilities}
        if choices.texts is None:
            return answers
        return answers | {"answer": tf.gather(choices.texts, choice, batch_dims=1)}

    def lite_answer(self, batch: TokenBatch, **more: tf.Tensor):
        # A row for each choice.
        return {"logits": self.logits(batch)[:, 0]}

    def lite_row(self, framer, *texts):
        return row_of(framer.choices(*(encode(framer.tokenizer, [text]) for text in texts)))

    def lite_description(self):
        return Answer("choices")

    def lite_expected(self, model, inputs, answers):
        rows = {name: values[:, None] for name, values in model_features(inputs).items()}
        return {"logits": as_array(model(rows, training=False))[:, 0]}


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))


def _fill_in(question: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
    parts = tf.strings.split(question, "_")
    place = tf.range(parts.bounding_shape()[1])
    inserted = (place > 0) & (place < parts.row_lengths()[:, tf.newaxis])
    filled = tf.where(inserted[:, tf.newaxis], choices[:, :, tf.newaxis], "") + parts.to_tensor("")[:, tf.newaxis]
    has_blank = (parts.row_lengths() > 1)[:, tf.newaxis]
    behind = question[:, tf.newaxis] + " " + choices
    return tf.where(has_blank, tf.strings.reduce_join(filled, axis=-1), behind)
