"""Exports of classifiers, regressors, token classifiers and multiple choice."""

from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from serving.exportable.base import NO_ANSWER, THRESHOLD, Exportable, ExportOptions
from serving.exportable.inputs import CLASSIFY, REGRESS, InputFormat, InputFormats, Tensors, specs
from serving.exportable.samples import as_array, model_features, row_of
from serving.inference.layers import dense
from serving.lite.description import Answer
from tfrecords.answers.numbers import tag_of_cut
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import TokenBatch, encode


class DenseHeadExportable(Exportable):
    """A model whose head is one float32 dense layer, by default on pooled_output."""

    def add_head(self, model) -> None:
        self.head = dense(model.head, tf.float32)

    def logits(self, batch: TokenBatch) -> Tensor:
        return self.head(self.pool(batch))

    def answer(self, batch: TokenBatch):
        return self.outputs(self.logits(batch), batch)

    def lite_answer(self, batch: TokenBatch, **more: Tensor):
        return {"logits": self.logits(batch)}


class ClassifierExportable(DenseHeadExportable, model=AlbertClassifier):
    """Exports an AlbertClassifier: `logits`, `probabilities` float32 [batch, classes] and `label` string [batch].

    `classes` string [batch, classes] names the columns, so that an answer and its names are always of one model.
    If texts may have several classes, `label` is the likeliest, and `labels` string [batch, classes] names those with a
    probability above the task's `threshold` (0.5), with "" for others.
    """

    def add_head(self, model) -> None:
        super().add_head(model)
        self.labels = labels_of(self.options, model)
        self.multi_label, self.threshold = model.multi_label, self.options.task.get("threshold", 0.5)

    def outputs(self, logits: Tensor, batch: TokenBatch):
        names = tf.constant(self.labels)
        classes = tf.gather(names, tf.broadcast_to(tf.range(len(self.labels)), tf.shape(logits)))
        named = {"label": tf.gather(names, tf.argmax(logits, axis=-1)), "classes": classes, "logits": logits}
        if not self.multi_label:
            return named | {"probabilities": tf.nn.softmax(logits)}
        probabilities = tf.nn.sigmoid(logits)
        return named | {"labels": tf.where(probabilities > self.threshold, names, ""), "probabilities": probabilities}

    def lite_description(self):
        kind, threshold = "labels" if self.multi_label else "classes", float(self.threshold)
        return Answer(kind, labels=tuple(self.labels), inputs=self.inputs, threshold=threshold)

    def answers(self, formats: InputFormats):
        return super().answers(formats) | {"classify": formats.examples.to(self.classes, method=CLASSIFY)}

    def classes(self, batch: TokenBatch):
        """Returns the Classify RPC's outputs: `classes` string and `scores` float32, both [batch, classes]."""
        answer = self.answer(batch)
        return {"classes": answer["classes"], "scores": answer["probabilities"]}


class RegressorExportable(DenseHeadExportable, model=AlbertRegressor):
    """Exports an AlbertRegressor: `value` float32 [batch] and, before an activation function, `logit`."""

    exit_kind = "regression"

    def add_head(self, model) -> None:
        super().add_head(model)
        self.activation, self.is_linear = keras.activations.get(model.activation), model.activation == "linear"

    def outputs(self, logits: Tensor, batch: TokenBatch):
        logit = logits[:, 0]
        return {"value": logit} if self.is_linear else {"value": self.activation(logit), "logit": logit}

    def lite_answer(self, batch: TokenBatch, **more: Tensor):
        return self.answer(batch)

    def lite_description(self):
        return Answer("numbers", inputs=self.inputs)

    def answers(self, formats: InputFormats):
        # As the Regress RPC wants it.
        regress = formats.examples.to(lambda batch: {"outputs": self.answer(batch)["value"]}, method=REGRESS)
        return super().answers(formats) | {"regress": regress}

    @staticmethod
    def keras_answers(model, features):
        return {"value": as_array(model(features, training=False))[:, 0]}


class TokenClassifierExportable(DenseHeadExportable, model=AlbertTokenClassifier):
    """Exports an AlbertTokenClassifier.

    Over ids: `labels` string [batch, length], `logits` and `probabilities` float32 [batch, length, classes]; "" and 0
    at padding. Over text: the same for each word of `str.split`, and `words` string, `starts`, `ends` int32 (in
    characters), [batch, words]. A word beyond the maximum length gets the label O, or "" if there is none.
    """

    exit_kind, reports_by_text = "tagging", False

    def add_head(self, model) -> None:
        super().add_head(model)
        self.labels = labels_of(self.options, model)
        # Tagging is of words in one text, whatever the task calls its columns.
        self.takes_pairs = False

    def logits(self, batch: TokenBatch) -> Tensor:
        return self.head(self.encoder.of_tokens(self.encode(batch)["sequence_output"]))

    def outputs(self, logits: Tensor, batch: TokenBatch):
        return self._named(logits, batch.mask > 0)

    def lite_row(self, framer, *texts):
        words = [framer.tokenizer.word_prefix + word for word in texts[0].split()]
        pieces = encode(framer.tokenizer, words)
        return row_of(framer.words(tf.RaggedTensor.from_row_lengths(pieces, [len(words)]))[0])

    def lite_description(self):
        return Answer("tags", labels=tuple(self.labels), inputs=self.inputs)

    @staticmethod
    def keras_answers(model, features):
        return {"logits": as_array(model(features, training=False)) * features["input_mask"][..., None]}

    def check_tokens(self, texts):
        # Separate words, each after one blank.
        return super().check_tokens([text and self.options.tokenizer.word_prefix + text for text in texts])

    def compared_texts(self, texts, expected, answers):
        # The words of the first text, which are a token each.
        count = min(len(texts[0].split()), self.options.max_seq_length - 2)
        first = 0 if self.encoder.config.spec.last_token else 1
        return {"logits": expected["logits"][:1, first : first + count]}, {"logits": answers["logits"][:1, :count]}

    def text_signatures(self):
        words = InputFormat(specs("text"), self.words)
        table = {
            "serving_default": words.to(lambda words: self._by_words(words, self.answer(words.batch))),
            "tokenize": words.to(lambda words: self.framer.describe(words.batch)),
        }
        if self.exits_early:
            table["early_exit"] = words.to(
                lambda words, threshold: self._by_words(words, self.answer_early(words.batch, threshold)), THRESHOLD
            )
        return table

    def words(self, text: Tensor) -> "Words":
        # Imported here: exports of token ids do not need tensorflow-text.
        from tfrecords.tokenizers.in_graph import split_words

        words, starts, ends = split_words(text)
        alone = tf.strings.join([self.framer.tokenizer.word_prefix, words.values])
        pieces = words.with_values(self.framer.in_graph(alone))
        rows, columns = self.framer.words(pieces)
        # A word without a piece becomes an unknown one.
        counts = tf.reduce_sum(tf.maximum(pieces.row_lengths(axis=2), 1), axis=1)
        kept = rows.input_ids.row_lengths() - self.framer.special_tokens(1)
        self.note_counts(counts, kept, self.unknown(rows.input_ids))
        return Words(rows.padded(), columns.to_tensor(-1), words.to_tensor(""), starts.to_tensor(), ends.to_tensor())

    def _by_words(self, words: "Words", answers: Tensors) -> Tensors:
        known = (words.columns >= 0) & (words.columns < self.options.max_seq_length - 1)
        logits = tf.gather(answers["logits"], tf.where(known, words.columns, 0), axis=1, batch_dims=1)
        places = {"words": words.words, "starts": words.starts, "ends": words.ends}
        steps = {name: value for name, value in answers.items() if name == "steps"}
        found = self._named(logits, known)
        if tag := tag_of_cut(self.labels):
            found["labels"] = tf.where((words.columns >= 0) & ~known, tag, found["labels"])
        return found | places | steps

    def _named(self, logits: Tensor, known: Tensor) -> Tensors:
        names = tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1))
        present = tf.cast(known, tf.float32)[:, :, tf.newaxis]
        return {
            "labels": tf.where(known, names, ""),
            "logits": logits * present,
            "probabilities": tf.nn.softmax(logits) * present,
        }


class Words(NamedTuple):
    """Texts split into words; `columns`: the column in `batch` of each word's first token, -1 for padding."""

    batch: TokenBatch
    columns: Tensor
    words: Tensor
    starts: Tensor
    ends: Tensor


def labels_of(options: ExportOptions, model: keras.Model) -> list[str]:
    """Returns the classes' names, by default their numbers; raises UserError for too few or too many."""
    count = model.num_classes
    labels = list(options.task.get("labels") or model.labels or map(str, range(count)))
    if len(labels) != count:
        raise UserError(
            f"the task names {len(labels)} labels ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''}), "
            f"the model has {count} classes; fix task.json (or id2label in config.json)"
        )
    return labels


class Choices(NamedTuple):
    """Questions with their choices; `batch` has a row for each choice, `present` is False for missing ones."""

    batch: TokenBatch
    present: Tensor
    texts: Tensor | None = None


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

    def choices(self, context: Tensor, question: Tensor, choices: Tensor) -> Choices:
        """Converts contexts, questions (strings [batch]) and choices (strings [batch, choices]) to rows.

        A row is [CLS] context [SEP] question and choice [SEP]; the choice replaces each "_" in the question, or follows
        it (google-research/albert race_utils.py). Question and choice keep their last 128 tokens.
        """
        contexts, answers = self.framer.tokenize(context, tf.reshape(_fill_in(question, choices), [-1]))
        contexts = tf.gather(contexts, tf.repeat(tf.range(tf.size(context)), self.options.num_choices))
        rows, present = self.framer.choices(contexts, answers), choices != ""

        def of_question(tokens: Tensor) -> Tensor:
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

    def lite_answer(self, batch: TokenBatch, **more: Tensor):
        # A row for each choice.
        return {"logits": self.logits(batch)[:, 0]}

    def lite_row(self, framer, *texts):
        return row_of(framer.choices(*(encode(framer.tokenizer, [text]) for text in texts)))

    def lite_description(self):
        return Answer("choices")

    def lite_expected(self, model, inputs, answers):
        rows = {name: values[:, None] for name, values in model_features(inputs).items()}
        return {"logits": as_array(model(rows, training=False))[:, 0]}


def _flat(tensor: Tensor) -> Tensor:
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))


def _fill_in(question: Tensor, choices: Tensor) -> Tensor:
    parts = tf.strings.split(question, "_")
    place = tf.range(parts.bounding_shape()[1])
    inserted = (place > 0) & (place < parts.row_lengths()[:, tf.newaxis])
    filled = tf.where(inserted[:, tf.newaxis], choices[:, :, tf.newaxis], "") + parts.to_tensor("")[:, tf.newaxis]
    has_blank = (parts.row_lengths() > 1)[:, tf.newaxis]
    behind = question[:, tf.newaxis] + " " + choices
    return tf.where(has_blank, tf.strings.reduce_join(filled, axis=-1), behind)
