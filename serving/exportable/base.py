"""The base class of exportable models."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.layers.padded import summary_columns
from albert_tf.models.early_exit import EarlyExitModel
from serving.exportable.inputs import (
    PREDICT,
    ExportSignature,
    InputFormat,
    InputFormats,
    Specs,
    Tensors,
    examples_of_strings,
    ids_formats,
    specs,
)
from serving.exportable.samples import Arrays, as_array, model_features, row_of, trial_texts
from serving.inference import ExitRule, InferenceEncoder, InferenceOptions, make_encoder, onednn
from serving.lite.description import Answer
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import FramedRows, Framer, TextFramer, TokenBatch, encode
from tfrecords.tokenizers.base import Tokenizer

# The score of what only fills up a row of answers: finite, below that of any answer, and of probability 0 by softmax.
NO_ANSWER = -1e4
THRESHOLD = specs("threshold", dtype=tf.float32)


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export; most are flags of ExportSettings.

    `tokenizer` is None if texts are not accepted. `task` is fine-tuning's "labels", "inputs" and "null_threshold".
    `calibration`, for int8, is typical input_ids int32 [rows, length] and lengths int32 [rows].
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
    dimensions: int = 0


# The kinds of exportable by the class of the model; each names its models where it is defined.
KINDS: dict[type, type["Exportable"]] = {}


def make_exportable(model, options: ExportOptions, encoder: InferenceEncoder | None = None) -> "Exportable":
    """Returns the Exportable of a model or AlbertEncoder; copies the weights.

    Raises:
        UserError: The model cannot be exported, or has no embeddings for `options.dimensions`.

    >>> from albert_tf import AlbertConfig, AlbertRegressor
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16)
    >>> list(make_exportable(AlbertRegressor(config), ExportOptions(max_seq_length=16)).signatures())
    ['serving_default', 'regress', 'masked', 'int64']
    """
    model = exported_part(model)
    if type(model) not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        raise UserError(f"a {type(model).__name__} cannot be exported; these can: {known}")
    kind = KINDS[type(model)]
    if options.dimensions and not kind.has_dimensions:
        raise UserError(f"--dimensions is of embeddings, and a {type(model).__name__} gives none; leave it out")
    return kind(model, options, encoder)


def exported_part(model):
    """Returns the exported part of a model: all, or only its encoder."""
    return getattr(model, "exported_part", model)


class _Solved:
    """What a call notes besides its answer: the encoder's reports, and counts of tokens."""

    outputs: Tensors = {}
    counts: Tensors = {}


class Exportable(tf.Module, abc.ABC):
    """The signatures of an export of one Keras model; each kind of model has a subclass.

    Attributes:
        exit_kind: The `ExitRule.kind` of early exit.
        rows_are_answers: Whether each answer comes from one encoder row, not several windows or choices.
        reports_by_text: Whether signatures of texts have the encoder's reports, too.
        has_dimensions: Whether an answer is a vector that may be shortened.
    """

    exit_kind: ClassVar[str] = "classification"
    rows_are_answers: ClassVar[bool] = True
    reports_by_text: ClassVar[bool] = True
    has_dimensions: ClassVar[bool] = False

    def __init_subclass__(cls, model: type | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if model is not None:
            KINDS[model] = cls

    def __init__(self, model, options: ExportOptions, encoder: InferenceEncoder | None = None):
        super().__init__()
        self.options = options
        self.encoder = encoder or make_encoder(model, options.inference, options.calibration, options.max_seq_length)
        inference, act = self.encoder.options, self.encoder.config.hidden_act
        trial = functools.partial(onednn.trial, inference.compute, act)
        self.cpu_check = None if inference.compute == "float32" else onednn.CpuCheck(inference.compute, trial)
        self.framer = None
        if options.tokenizer is not None and self.encoder.takes_texts:
            self.framer = TextFramer(options.tokenizer, options.max_seq_length)
        # None if it is unknown whether texts come alone or in pairs.
        names = options.task.get("inputs")
        self.inputs = None if names is None else tuple(names)
        self.takes_pairs = None if names is None else len(names) == 2
        self._solved = _Solved()
        # A closure holds them, since attributes of a module are saved.
        exits = self._exits(model)
        self.exit_heads = lambda: exits
        self.add_head(model)

    def add_head(self, model) -> None:
        """Adds the layers after the encoder."""

    def _exits(self, model) -> list:
        if self.options.exit_rule == "movement" and self.encoder.config.spec.last_token:
            raise UserError("early exit by movement is not offered with relative positions; leave it out")
        if self.options.exit_rule == "movement":
            if isinstance(model, EarlyExitModel):
                return model.exit_heads or [model.head] * self.encoder.config.num_steps
            if self.exit_kind != "states":
                raise UserError(f"early exit by movement is not offered for a {type(model).__name__}; leave it out")
        return list(getattr(model, "exit_heads", []))

    @property
    def num_pieces(self) -> int:
        """The number of ids that are pieces; a model's table may have more rows than its tokenizer has pieces."""
        rows, tokenizer = self.encoder.config.vocab_size, self.options.tokenizer
        return rows if tokenizer is None else min(rows, tokenizer.vocab_size)

    @property
    def exits_early(self) -> bool:
        return bool(self.exit_heads())

    @abc.abstractmethod
    def answer(self, batch: TokenBatch) -> Tensors:
        """Returns the model's outputs by name; the batch is their first axis."""

    def lite_answer(self, batch: TokenBatch, **more: Tensor) -> Tensors:
        """Returns the outputs of a LiteRT file, numbers alone; `more` are its inputs in `lite_inputs`."""
        return self.answer(batch)

    @abc.abstractmethod
    def lite_description(self) -> Answer:
        """Describes how a LiteRT file's outputs become answers."""

    # Further inputs of a LiteRT file; and its outputs by signature, if not all in `serving_default`.
    lite_inputs: ClassVar[Specs] = {}
    lite_signatures: ClassVar[dict[str, tuple[str, ...]]] = {}

    @property
    def lite_takes_pairs(self) -> bool:
        """Whether a LiteRT file has the input segment_ids."""
        return self.takes_pairs is not False

    def lite_texts(self, tokenizer: Tokenizer) -> list[str]:
        """Returns three texts to try a LiteRT file with."""
        return trial_texts(tokenizer)

    def lite_row(self, framer: Framer, *texts: str) -> Arrays:
        """Returns a LiteRT file's inputs for one text, or for a pair."""
        return row_of(framer.frame(*(encode(framer.tokenizer, [text]) for text in texts)))

    def lite_expected(self, model, inputs: Arrays, answers: Arrays) -> Arrays:
        """Returns the Keras model's outputs, to compare with a LiteRT file's `answers` to `inputs`."""
        return self.shortened(self.keras_answers(model, model_features(inputs)))

    def outputs(self, logits: Tensor, batch: TokenBatch) -> Tensors:
        """Converts logits, of the head or of early exit, to the outputs of `answer`."""
        raise NotImplementedError

    def answer_early(self, batch: TokenBatch, threshold: Tensor) -> Tensors:
        """Returns outputs with early exit, and `steps` int32 [batch]: computed steps."""
        exited = self._exited(batch, threshold)
        return self.outputs(exited["logits"], batch) | {"steps": exited["steps"]}

    def _exited(self, batch: TokenBatch, threshold: Tensor) -> Tensors:
        ids, rule = self._checked(batch.input_ids), ExitRule(self.exit_kind, self.options.exit_rule)
        return self.encoder.early_exit(
            ids, batch.lengths, batch.segment_ids, self.exit_heads(), threshold, rule, batch.mask
        )

    def encode(self, batch: TokenBatch) -> Tensors:
        """Returns float32 sequence_output [batch, length, hidden_size] and, with a pooler, pooled_output."""
        outputs = self._encode(*batch, batch.lengths)
        self._solved.outputs = {name: outputs[name] for name in self.encoder.reports if name in outputs}
        return outputs

    def pool(self, batch: TokenBatch) -> Tensor:
        """Returns only pooled_output, float32 [batch, hidden_size]; faster than `encode`."""
        if self.encoder.reports:
            return self.encode(batch)["pooled_output"]
        return self._pool(*batch, batch.lengths)

    @functools.cached_property
    def _encode(self):
        return self._shared(self.encoder)

    @functools.cached_property
    def _pool(self):
        return self._shared(self.encoder.pooled)

    def _shared(self, method):
        """Returns a function that calls `method` in one graph for all signatures."""

        def call(input_ids, input_mask, segment_ids, lengths):
            return method(self._checked(input_ids), lengths, segment_ids, input_mask)

        @functools.cache
        def graph():
            matrices = [tf.TensorSpec([None, None], tf.int32)] * 3
            with tf.init_scope():
                function = tf.function(call, autograph=False)
                return function.get_concrete_function(*matrices, tf.TensorSpec([None], tf.int32))

        def shared(*arguments):
            # A concrete function runs as a graph even where functions are to run eagerly.
            run_eagerly = tf.executing_eagerly() and tf.config.functions_run_eagerly()
            return (call if run_eagerly else graph())(*arguments)

        return shared

    def _checked(self, input_ids: Tensor) -> Tensor:
        limit = self.options.max_seq_length
        message = f"input_ids is longer than the {limit} tokens this model takes"
        with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(input_ids)[1], limit, message)]):
            return tf.identity(input_ids)

    def signatures(self) -> dict[str, ExportSignature]:
        """Returns all signatures by name; in exports for texts, the signature `ids` takes token ids."""
        by_ids = {name: self._completed(one, True) for name, one in self.ids_signatures().items()}
        if self.framer is None:
            return by_ids
        by_text = {
            name: self._completed(one, self.reports_by_text, True) for name, one in self.text_signatures().items()
        }
        return by_text | {"ids": by_ids["serving_default"]}

    def ids_signatures(self) -> dict[str, ExportSignature]:
        formats = self.ids_formats
        table = self.answers(formats)
        return table | {"masked": formats.masked.to(self.answer), "int64": formats.int64.to(self.answer)}

    @property
    def ids_formats(self) -> InputFormats:
        return ids_formats(self.encoder.config.spec.last_token, bool(self.takes_pairs))

    def summaries(self, batch: TokenBatch) -> Tensor:
        """Returns the column of each row's [CLS], int32 [batch]."""
        return summary_columns({"input_ids": batch.input_ids, "input_mask": batch.mask}, self.encoder.config)

    def text_signatures(self) -> dict[str, ExportSignature]:
        single, pair = InputFormat(specs("text"), self.single), InputFormat(specs("first", "second"), self.pair)
        default = pair if self.takes_pairs else single
        examples = examples_of_strings(default)
        table = self.answers(InputFormats(default, single, pair, examples))
        table["tokenize"] = default.to(self.framer.describe)
        table = table if self.takes_pairs is not None else table | {"pair": pair.to(self.answer)}
        table["with_options"] = self.with_options(default, self.answer)
        for name, answer in self.text_answers.items():
            table[f"{name}_with_options"] = self.with_options(single, answer)
        return table

    @property
    def text_answers(self) -> dict[str, Callable[[TokenBatch], Tensors]]:
        """Further answers to single texts, by signature."""
        return {}

    def with_options(self, format_: InputFormat, answer: Callable[[TokenBatch], Tensors]) -> ExportSignature:
        """Returns a signature for `answer` with options as further inputs.

        `truncate_left`, bool [batch], cuts too long texts at the beginning. Further outputs are `lengths` and token
        counts.
        """
        format_ = InputFormat(format_.inputs | specs("truncate_left", dtype=tf.bool), format_.read)
        return format_.to(lambda batch: answer(batch) | {"lengths": batch.lengths})

    def answers(self, formats: InputFormats) -> dict[str, ExportSignature]:
        """Returns the signatures that exports of ids and of texts share."""
        table = {"serving_default": formats.default.to(self.answer)}
        if self.exits_early:
            table["early_exit"] = formats.default.to(self.answer_early, THRESHOLD)
        return table | {name: formats.single.to(answer) for name, answer in self.text_answers.items()}

    @staticmethod
    def keras_answers(model, features: Arrays) -> Arrays:
        """Returns the Keras model's outputs, named as in exports."""
        return {"logits": as_array(model(features, training=False))}

    def shortened(self, answers: Arrays) -> Arrays:
        """Shortens the Keras model's embeddings to `options.dimensions`, as exports do."""
        return answers

    def check_tokens(self, texts: Sequence[str]) -> tf.RaggedTensor:
        return encode(self.options.tokenizer, texts)

    def compared_texts(self, texts: Sequence[str], expected: Arrays, answers: Arrays) -> tuple[Arrays, Arrays]:
        """Returns the arrays to compare in a check of texts: the Keras model's and the export's."""
        return expected, answers

    def _completed(self, signature: ExportSignature, reports: bool, counts: bool = False) -> ExportSignature:
        """Adds the encoder's reports and the texts' token counts to the outputs."""
        if signature.method != PREDICT:
            reports = counts = False

        def function(**inputs):
            self._solved = _Solved()
            answers = signature.function(**inputs)
            if reports and self.rows_are_answers:
                answers |= self._solved.outputs
            # A single output REST returns without a name.
            if counts and len(answers) > 1:
                answers |= self._solved.counts
            return answers

        return signature._replace(function=function)

    def note_counts(self, total: Tensor, kept: Tensor, unknown: Tensor) -> None:
        """Stores numbers of tokens [batch]: all, those that the model reads, and unknown ones."""
        total, kept, unknown = (tf.cast(count, tf.int32) for count in (total, kept, unknown))
        self._solved.counts = {"text_tokens": total, "truncated_tokens": total - kept, "unknown_tokens": unknown}

    def unknown(self, tokens: tf.RaggedTensor) -> Tensor:
        """Counts the unknown tokens of each row, int32 [batch]."""
        is_unknown = tf.equal(tokens.to_tensor(-1), self.framer.tokenizer.unk_id)
        return tf.reduce_sum(tf.cast(is_unknown, tf.int32), axis=1)

    def framed(self, rows: FramedRows, *tokens: tf.RaggedTensor) -> TokenBatch:
        total = sum(of_text.row_lengths() for of_text in tokens)
        kept = rows.input_ids.row_lengths() - self.framer.special_tokens(len(tokens))
        self.note_counts(total, kept, self.unknown(rows.input_ids))
        return rows.padded()

    def single(self, text: Tensor, truncate_left: Tensor | None = None) -> TokenBatch:
        """Converts strings [batch] to rows; `truncate_left`, bool [batch], cuts long ones at the beginning."""
        (tokens,) = self.framer.tokenize(text)
        return self.framed(self.framer.single(tokens, truncate_left), tokens)

    def pair(self, first: Tensor, second: Tensor, truncate_left: Tensor | None = None) -> TokenBatch:
        tokens = self.framer.tokenize(first, second)
        return self.framed(self.framer.pair(tokens[0], tokens[1], truncate_left), *tokens)
