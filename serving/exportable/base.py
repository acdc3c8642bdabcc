"""What every exported model is: an encoder, a head on it, and ways in."""

import abc
import dataclasses
import functools
from typing import Any

import tensorflow as tf

from serving.cpu import NEEDS
from serving.exportable.cpu_check import CpuCheck
from serving.exportable.inputs import BY_LENGTHS, SEGMENTS, batch_of_lengths, batch_of_mask, by_mask
from serving.exportable.signature import Signature, specs
from serving.inference import ExitRule, InferenceOptions, make_encoder
from tfrecords.framing import TextFramer, TokenBatch
from tfrecords.tokenizers.base import Tokenizer

THRESHOLD = specs("threshold", dtype=tf.float32)


@dataclasses.dataclass(frozen=True)
class ServableOptions:
    """How a model is served.

    Attributes:
        max_seq_length: of the longest row, in tokens.
        tokenizer: of a servable that takes strings; None: it takes token ids.
        task: what fine-tuning wrote of the task ("labels", "inputs", "null_threshold"), or {}.
        inference: how the encoder computes.
        calibration: for int8, input_ids int32 [rows, length] and lengths int32 [rows] like those to come.
        exit_rule: "confidence" or "patience", of models with early exits (see `ExitRule`).
        top_k: pieces proposed for a mask, and answers to a question.
        doc_stride, max_query_length: of the windows that a long context is read in, in tokens.
        num_choices: candidates of one question.
    """

    max_seq_length: int
    tokenizer: Tokenizer | None = None
    task: dict[str, Any] = dataclasses.field(default_factory=dict)
    inference: InferenceOptions = dataclasses.field(default_factory=InferenceOptions)
    calibration: tuple | None = None
    exit_rule: str = "confidence"
    top_k: int = 5
    doc_stride: int = 128
    max_query_length: int = 64
    num_choices: int = 4


class Servable(tf.Module, abc.ABC):
    """Answers of one Keras model, by signature. Subclasses give the head, and how `ExitRule` is to see its logits."""

    exit_kind = "classification"

    def __init__(self, model, options: ServableOptions):
        super().__init__()
        self.options = options
        self.encoder = make_encoder(model, options.inference, options.calibration)
        compute = self.encoder.options.compute
        self.cpu_check = CpuCheck(compute) if compute in NEEDS else None
        self.framer = None
        if options.tokenizer is not None:
            self.framer = TextFramer(options.tokenizer, options.max_seq_length)
        # None where nobody said whether texts come alone or in pairs.
        names = options.task.get("inputs")
        self.takes_pairs = None if names is None else len(names) == 2
        # The variables alone: a tracked Keras layer would be stored a second time.
        self.head_variables = [variable.value for variable in _head_variables(model)]
        exits = list(getattr(model, "exit_heads", []))
        self.exit_heads = lambda: exits

    @abc.abstractmethod
    def answer(self, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """The model's outputs, each with the batch first."""

    def answer_early(self, rows: TokenBatch, threshold: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `answer`, of a model with early exits; `steps` int32 [batch] says how deep each row went."""
        rule = ExitRule(self.exit_kind, self.options.exit_rule)
        ids = self._checked(rows.input_ids)
        found = self.encoder.early_exit(
            ids, rows.lengths, rows.segment_ids, self.exit_heads(), threshold, rule, rows.mask
        )
        return self.outputs(found["logits"], rows) | {"steps": found["steps"]}

    def outputs(self, logits: tf.Tensor, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """What heads that can exit early make of their logits."""
        raise NotImplementedError

    def encode(self, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """float32 sequence_output [batch, length, hidden_size] and, where there is a pooler, pooled_output."""
        return self._encode(rows.input_ids, rows.segment_ids, rows.mask, rows.lengths)

    def pool(self, rows: TokenBatch) -> tf.Tensor:
        """The pooled_output alone, float32 [batch, hidden_size], without most of the last step."""
        return self._pool(rows.input_ids, rows.segment_ids, rows.mask, rows.lengths)

    @functools.cached_property
    def _encode(self):
        return self._shared(self.encoder)

    @functools.cached_property
    def _pool(self):
        return self._shared(self.encoder.pooled)

    def _shared(self, method):
        """One graph that all signatures call; behind a closure, since what is a module's attribute is saved once more
        for Python's use."""

        def call(input_ids, segment_ids, input_mask, lengths):
            return method(self._checked(input_ids), lengths, segment_ids, input_mask)

        rows = [tf.TensorSpec([None, None], tf.int32)] * 3
        with tf.init_scope():
            concrete = tf.function(call, autograph=False).get_concrete_function(*rows, tf.TensorSpec([None], tf.int32))
        return lambda *arguments: concrete(*arguments)

    def _checked(self, input_ids: tf.Tensor) -> tf.Tensor:
        limit = self.options.max_seq_length
        message = f"input_ids is longer than the {limit} tokens this model takes"
        with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(input_ids)[1], limit, message)]):
            return tf.identity(input_ids)

    def signatures(self) -> dict[str, Signature]:
        """All that a server offers; a model that takes strings also takes ids, as `ids`."""
        by_ids = self.ids_signatures()
        return by_ids if self.framer is None else self.text_signatures() | {"ids": by_ids["serving_default"]}

    def ids_signatures(self) -> dict[str, Signature]:
        signatures = {
            "serving_default": Signature(self.by_lengths, BY_LENGTHS),
            "masked": Signature(self.by_mask, by_mask(tf.int32)),
            "int64": Signature(self.by_mask, by_mask(tf.int64)),
        }
        early = self.early_by_lengths
        if self.takes_pairs:
            signatures["serving_default"] = Signature(self.by_segments, BY_LENGTHS | SEGMENTS)
            early = self.early_by_segments
        if self.exit_heads():
            signatures["early_exit"] = Signature(early, signatures["serving_default"].inputs | THRESHOLD)
        return signatures

    def text_signatures(self) -> dict[str, Signature]:
        single, pair = specs("text"), specs("first", "second")
        if self.takes_pairs:
            signatures = {
                "serving_default": Signature(self.by_pair, pair),
                "tokenize": Signature(self.tokenize_pair, pair),
            }
        else:
            signatures = {
                "serving_default": Signature(self.by_text, single),
                "tokenize": Signature(self.tokenize, single),
            }
        if self.takes_pairs is None:
            signatures["pair"] = Signature(self.by_pair, pair)
        if self.exit_heads():
            early = self.early_by_pair if self.takes_pairs else self.early_by_text
            signatures["early_exit"] = Signature(early, signatures["serving_default"].inputs | THRESHOLD)
        return signatures

    def by_lengths(self, input_ids, lengths):
        return self.answer(batch_of_lengths(input_ids, lengths))

    def by_segments(self, input_ids, lengths, segment_ids):
        return self.answer(batch_of_lengths(input_ids, lengths, segment_ids))

    def by_mask(self, input_ids, input_mask, segment_ids):
        return self.answer(batch_of_mask(input_ids, input_mask, segment_ids))

    def early_by_lengths(self, input_ids, lengths, threshold):
        return self.answer_early(batch_of_lengths(input_ids, lengths), threshold)

    def early_by_segments(self, input_ids, lengths, segment_ids, threshold):
        return self.answer_early(batch_of_lengths(input_ids, lengths, segment_ids), threshold)

    def by_text(self, text):
        return self.answer(self.text_rows(text))

    def by_pair(self, first, second):
        return self.answer(self.pair_rows(first, second))

    def early_by_text(self, text, threshold):
        return self.answer_early(self.text_rows(text), threshold)

    def early_by_pair(self, first, second, threshold):
        return self.answer_early(self.pair_rows(first, second), threshold)

    def tokenize(self, text):
        return self.framer.describe(self.text_rows(text))

    def tokenize_pair(self, first, second):
        return self.framer.describe(self.pair_rows(first, second))

    def text_rows(self, text: tf.Tensor) -> TokenBatch:
        return self.framer.single(*self.framer.tokenize(text)).padded()

    def example_rows(self, serialized: tf.Tensor) -> TokenBatch:
        """tf.Examples with the string features that the default signature takes."""
        names = ("first", "second") if self.takes_pairs else ("text",)
        features = tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
        texts = [features[name] for name in names]
        return self.pair_rows(*texts) if self.takes_pairs else self.text_rows(*texts)

    def pair_rows(self, first: tf.Tensor, second: tf.Tensor) -> TokenBatch:
        return self.framer.pair(*self.framer.tokenize(first, second)).padded()


def _head_variables(model) -> list:
    """What a model has beside its encoder, each once."""
    encoder = getattr(model, "encoder", model)
    inside = {id(variable) for variable in encoder.variables}
    return [variable for variable in model.variables if id(variable) not in inside]
