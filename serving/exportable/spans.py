"""Exports of models that find answers in texts."""

import keras
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.models.heads import JointSpanHead, search_spans, span_scores
from albert_tf.models.span_predictor import AlbertSpanPredictor
from serving.exportable.base import NO_ANSWER, Exportable
from serving.exportable.inputs import ExportSignature, InputFormat, Tensors, specs
from serving.exportable.samples import as_array, model_features
from serving.inference.layers import ExportedNorm, arrays
from serving.lite.description import Answer
from tfrecords.answers.spans import IMPOSSIBLE, edge_pattern
from tfrecords.reading.framing import TokenBatch, encode


class SpanExportable(Exportable, model=AlbertSpanPredictor):
    """Exports an AlbertSpanPredictor, with a joint or plain head.

    Over texts: see `by_context`. Over ids: `start_log_probs` and, with the plain head, `end_log_probs`, float32 [batch,
    length], -1e30 where answers are impossible. Best spans: `starts`, `ends` int32 (both included) and `scores` float32
    [batch, spans], of which the first `num_spans` int32 [batch] are valid. `no_answer_score` float32 [batch] is above 0
    for no answer (joint head: a logit; plain head: log odds against the best span).
    """

    rows_are_answers = False

    def add_head(self, model) -> None:
        self.joint, self.max_answer_length = model.joint, model.max_answer_length
        self.start_top, self.count = model.start_top, model.start_top * model.end_top
        self.head = lambda: model.head
        # The variables alone: a tracked Keras layer would be stored a second time.
        self.head_variables = [variable.value for variable in model.head.variables]
        self.takes_pairs = True
        self.null_threshold = self.options.task.get("null_threshold")

    def answer(self, rows: TokenBatch):
        # As the Keras model's own default: anywhere in segment 1.
        found = self._search(rows, (rows.segment_ids == 1) & (rows.mask > 0) & ~self._is_summary(rows))
        found |= _filled_up(found, self.count)
        return found | {"no_answer_score": self._no_answer(found.pop("null_score"), found["scores"])}

    @staticmethod
    def keras_answers(model, features):
        outputs = model(features, training=False)
        other = {"no_answer_score": "answerable_logits"} if model.joint else {"end_log_probs": "end_log_probs"}
        names = {"start_log_probs": "start_log_probs"} | other
        return {name: as_array(outputs[key]) for name, key in names.items()}

    @property
    def lite_inputs(self):
        return specs("allowed", "may_start", dtype=tf.bool, shape=(None, None)) if self.joint else {}

    def lite_answer(self, batch: TokenBatch, allowed: Tensor | None = None, may_start: Tensor | None = None):
        hidden = self.encoder.of_tokens(self.encode(batch)["sequence_output"])
        return (
            joint_scores(self.head(), hidden, allowed, may_start, self.start_top)
            if self.joint
            else {"logits": rows_product(self.head(), hidden)}
        )

    def lite_row(self, framer, *texts):
        question, context = (encode(framer.tokenizer, [text]) for text in texts)
        windows = framer.windows(question, context, self.options.doc_stride, self.options.max_query_length)
        rows, token, is_best = windows.padded()
        inputs = {"input_ids": rows.input_ids, "lengths": rows.lengths, "segment_ids": rows.segment_ids}
        inputs |= {"allowed": (token >= 0) | self._is_summary(rows), "may_start": is_best}
        return {name: value.numpy()[:1] for name, value in inputs.items()}

    def lite_description(self):
        null_threshold = None if self.null_threshold is None else float(self.null_threshold)
        search = {"start_top": self.start_top, "end_top": self.count // self.start_top}
        search |= {"max_answer_length": self.max_answer_length, "null_threshold": null_threshold}
        return Answer("spans", inputs=self.inputs, joint=self.joint, **search)

    def lite_expected(self, model, inputs, answers):
        hidden = model.encoder.of_tokens(model.encoder(model_features(inputs), training=False)["sequence_output"])
        if not model.joint:
            return {"logits": as_array(model.head(hidden))}
        scores = span_scores(model.head, hidden, inputs["allowed"])
        found = {"start_log_probs": scores.start_log_probs, "no_answer_score": scores.answerable_logits}
        found |= {"end_log_probs": scores.end_log_probs(answers["start_index"])}
        return {name: as_array(value) for name, value in found.items()}

    def text_signatures(self):
        return {
            "serving_default": ExportSignature(self.by_context, specs("question", "context")),
            "tokenize": InputFormat(specs("text"), self.single).to(self.framer.describe),
        }

    def by_context(self, question, context):
        """Answers questions from contexts of any length.

        Returns:
            `answer` string [batch], stripped of white space and controls; "" if `no_answer_score` is above
            fine-tuning's threshold. `start`, `end` int32 [batch], in characters, 0 without an answer; `score`,
            `no_answer_score` float32 [batch]. The best spans, whatever the threshold: `answers`, `starts`, `ends`,
            `scores`, `probabilities`, [batch, top_k]; missing ones are "" with probability 0.
        """
        ids, starts, ends = self.framer.in_graph.with_offsets(context)
        of_windows = self.options.doc_stride, self.options.max_query_length
        asked = self.framer.in_graph(question)
        windows = self.framer.windows(asked, ids, *of_windows)
        # The windows together hold the whole context.
        kept = tf.minimum(asked.row_lengths(), self.framer.question_room(self.options.max_query_length))
        unknown = self.unknown(asked) + self.unknown(ids)
        self.note_counts(asked.row_lengths() + ids.row_lengths(), kept + ids.row_lengths(), unknown)
        rows, token, is_best = windows.padded()
        found = self._search(rows, token >= 0, is_best)
        places = tf.maximum(token, 0), starts.values, ends.values
        of_rows = _with_texts(tf.gather(context, windows.question), *places, found)
        best = self._best_of_rows(of_rows, windows.question, tf.size(context))
        present = _is_legal(best["scores"])
        best["scores"] = tf.where(present, best["scores"], NO_ANSWER)
        null_score = tf.math.unsorted_segment_min(found["null_score"], windows.question, tf.size(context))
        probabilities = tf.nn.softmax(best["scores"]) * tf.cast(present, tf.float32)
        chosen = self._chosen(best, self._no_answer(null_score, best["scores"]), present[:, 0])
        return best | chosen | {"probabilities": probabilities}

    def _search(self, rows: TokenBatch, allowed: Tensor, may_start: Tensor | None = None) -> Tensors:
        """Finds the best spans between `allowed` positions; log-probabilities are over these positions and [CLS]."""
        hidden = self.encoder.of_tokens(self.encode(rows)["sequence_output"])
        scored, columns = allowed | self._is_summary(rows), self.summaries(rows)
        may_start = allowed if may_start is None else may_start
        summary = tf.gather(hidden, columns, axis=1, batch_dims=1)
        scores = span_scores(self.head(), hidden, scored, summary=summary)
        outputs = {"start_log_probs": scores.start_log_probs}
        if self.joint:
            null_score = scores.answerable_logits
        else:
            outputs["end_log_probs"] = scores.end_log_probs(None)[:, 0]
            null_score = sum(tf.gather(of, columns, axis=1, batch_dims=1) for of in outputs.values())
        spans = search_spans(scores, self.start_top, self.count, self.max_answer_length, may_start, allowed)
        found = {"starts": spans["start_index"], "ends": spans["end_index"], "scores": spans["score"]}
        return outputs | found | {"null_score": null_score}

    def _is_summary(self, rows: TokenBatch) -> Tensor:
        return tf.range(tf.shape(rows.mask)[1]) == self.summaries(rows)[:, tf.newaxis]

    def _no_answer(self, null_score: Tensor, scores: Tensor) -> Tensor:
        return null_score if self.joint else null_score - tf.reduce_max(scores, axis=1)

    def _best_of_rows(self, spans: Tensors, row: Tensor, count: Tensor) -> Tensors:
        def filled(name: str, fill) -> Tensor:
            found = _by_row(spans[name], row, count).to_tensor(fill)
            return tf.concat([found, tf.fill([count, self.options.top_k], tf.cast(fill, found.dtype))], axis=1)

        scores, index = tf.math.top_k(filled("scores", IMPOSSIBLE), self.options.top_k)
        fills = {"answers": "", "starts": 0, "ends": 0}
        best = {name: tf.gather(filled(name, fill), index, batch_dims=1) for name, fill in fills.items()}
        return best | {"scores": tf.maximum(scores, IMPOSSIBLE)}

    def _chosen(self, several: dict, no_answer: Tensor, present: Tensor) -> Tensors:
        if self.null_threshold is not None:
            present &= no_answer <= self.null_threshold
        return {
            "answer": tf.where(present, several["answers"][:, 0], ""),
            "end": tf.where(present, several["ends"][:, 0], 0),
            "no_answer_score": no_answer,
            "score": several["scores"][:, 0],
            "start": tf.where(present, several["starts"][:, 0], 0),
        }


def rows_product(layer: keras.layers.Dense, vectors: Tensor, part: slice = slice(None)) -> Tensor:
    """Multiplies vectors [..., inputs] by a part of a dense layer's kernel, as a product of matrices."""
    kernel, bias = arrays(layer)
    kernel = kernel[part]
    product = tf.matmul(tf.reshape(vectors, [-1, kernel.shape[0]]), kernel)
    product = product + bias if part.start is None else product
    return tf.reshape(product, tf.concat([tf.shape(vectors)[:-1], kernel.shape[1:]], axis=0))


def joint_scores(head: JointSpanHead, hidden: Tensor, allowed: Tensor, may_start: Tensor, start_top: int) -> Tensors:
    """Scores as a JointSpanHead does, in LiteRT's own operations: the `start_top` likeliest starts, and their ends."""
    width = hidden.shape[-1]
    starts = tf.nn.log_softmax(tf.where(allowed, rows_product(head.start, hidden)[:, :, 0], IMPOSSIBLE))
    count = tf.minimum(start_top, tf.shape(starts)[1])
    _, index = tf.math.top_k(tf.where(may_start, starts, IMPOSSIBLE), count)
    given = tf.gather(hidden, index, axis=1, batch_dims=1)
    # A product with two vectors side by side is the sum of two products.
    of_ends = tf.expand_dims(rows_product(head.end_hidden, hidden, slice(0, width)), 1)
    of_starts = tf.expand_dims(rows_product(head.end_hidden, given, slice(width, None)), 2)
    pairs = ExportedNorm(head.end_norm)(tf.tanh(of_ends + of_starts + arrays(head.end_hidden)[1]))
    ends = tf.where(tf.expand_dims(allowed, 1), rows_product(head.end, pairs)[..., 0], IMPOSSIBLE)
    expected = tf.reduce_sum(hidden * tf.expand_dims(tf.exp(starts), 2), axis=1)
    answer = tf.tanh(rows_product(head.answer_hidden, tf.concat([expected, hidden[:, 0]], axis=1)))
    return {
        "start_log_probs": starts,
        "start_index": index,
        "end_log_probs": tf.nn.log_softmax(ends),
        "no_answer_score": rows_product(head.answer, answer)[:, 0],
    }


def _is_legal(scores: Tensor) -> Tensor:
    return scores > IMPOSSIBLE / 2


def _filled_up(found: Tensors, count: int) -> Tensors:
    legal = _is_legal(found["scores"])
    padding = [[0, 0], [0, count - tf.shape(legal)[1]]]

    def filled(name: str, fill) -> Tensor:
        padded = tf.pad(tf.where(legal, found[name], fill), padding, constant_values=fill)
        return tf.ensure_shape(padded, [None, count])

    spans = {"starts": filled("starts", 0), "ends": filled("ends", 0), "scores": filled("scores", NO_ANSWER)}
    return spans | {"num_spans": tf.reduce_sum(tf.cast(legal, tf.int32), axis=1)}


def _by_row(values: Tensor, row: Tensor, count: Tensor) -> tf.RaggedTensor:
    rows = tf.RaggedTensor.from_value_rowids(values, row, tf.cast(count, row.dtype), validate=False)
    return rows.merge_dims(1, 2)


def _with_texts(contexts: Tensor, token: Tensor, first: Tensor, last: Tensor, found: dict) -> Tensors:
    # Gather needs a non-empty tensor, even for batches without context tokens.
    first, last = (tf.concat([values, [0]], axis=0) for values in (first, last))
    tokens = (tf.gather(token, found[name], batch_dims=1) for name in ("starts", "ends"))
    answers, starts, ends = _without_edges(contexts, *map(tf.gather, (first, last), tokens))
    present = _is_legal(found["scores"]) & (answers != "")
    return {
        "answers": tf.where(present, answers, ""),
        "ends": tf.where(present, ends, 0),
        "scores": tf.where(present, found["scores"], IMPOSSIBLE),
        "starts": tf.where(present, starts, 0),
    }


def _without_edges(texts: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    edge = edge_pattern()
    answers = _substrings(texts, starts, ends)
    from_left = tf.strings.regex_replace(answers, rf"\A{edge}+", "", replace_global=False)
    trimmed = tf.strings.regex_replace(from_left, rf"{edge}+\z", "", replace_global=False)
    whole, right, inner = (tf.strings.length(one, unit="UTF8_CHAR") for one in (answers, from_left, trimmed))
    starts += whole - right
    return trimmed, starts, starts + inner


def _substrings(texts: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    repeated = tf.broadcast_to(texts[:, tf.newaxis], tf.shape(starts))
    return tf.strings.substr(repeated, starts, ends - starts, unit="UTF8_CHAR")
