"""What every exportable model is: an encoder, a head on it, and a table of ways in and answers."""

import abc
import copy
import dataclasses
import functools
from typing import Any, NamedTuple, Self

import tensorflow as tf

from albert_tf.layers.padded import summary_columns
from albert_tf.models.early_exit import EarlyExitModel, check_exit
from serving.cpu import NEEDS, CpuCheck
from serving.exportable.decoding import Decoder
from serving.exportable.ways import IDS_WAYS, PREDICT, IdsWays, Signature, Way, specs
from serving.inference import ExitRule, InferenceEncoder, InferenceOptions, make_encoder
from serving.inference.layers import dense
from tfrecords.base.errors import UserError
from tfrecords.framing import FramedRows, TextFramer, TokenBatch
from tfrecords.tokenizers.base import Tokenizer

# The score of what only fills up a row of answers: finite, below that of any answer, and of probability 0 by softmax.
NO_ANSWER = -1e4
THRESHOLD = specs("threshold", dtype=tf.float32)
_DECODED = specs("ids", dtype=tf.int32, shape=(None, None)) | specs("lengths", dtype=tf.int32)
_DECODED |= specs("skip_special_tokens", dtype=tf.bool)


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What a model is exported for.

    Attributes:
        max_seq_length: The length of the longest row, in tokens.
        tokenizer: The one of an export that takes strings; None: it takes token ids.
        task: What fine-tuning wrote of the task ("labels", "inputs", "null_threshold"), or {}.
        inference: How the encoder computes.
        calibration: For int8, input_ids int32 [rows, length] and lengths int32 [rows] like those to come.
        exit_rule: When rows leave early, of models that can (see `ExitRule`).
        top_k: How many pieces are proposed for a mask, and answers to a question.
        doc_stride: The distance of the windows that a long context is read in, in tokens.
        max_query_length: How many tokens of a question are read.
        num_choices: How many candidates a question has.
        dimensions: How many numbers of an embedding are given; 0: all.
        check_numbers: Whether a request fails in whose answer a number is NaN or infinite.
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
    check_numbers: bool = False


class Ways(NamedTuple):
    """The ways in that an export by ids, or one by text, has in common: one text or a pair, and tf.Examples.

    Attributes:
        default: `single` or `pair`, whichever the model was trained on.
    """

    default: Way
    single: Way
    pair: Way
    examples: Way


class FollowingBatch(NamedTuple):
    """A TokenBatch whose rows follow others; `features` are those of `InferenceEncoder.specs`."""

    input_ids: tf.Tensor
    mask: tf.Tensor
    segment_ids: tf.Tensor
    features: dict[str, tf.Tensor]

    @property
    def lengths(self) -> tf.Tensor:
        """The number of tokens of each row, int32 [batch]."""
        return tf.reduce_sum(self.mask, axis=1)


class _Solved:
    """What was noted last of the rows, while a signature is traced; no attribute that would be saved.

    Attributes:
        outputs: What the encoder said of them.
        truncation: What their texts lost; see `Exportable.note_truncation`.
    """

    outputs: dict[str, tf.Tensor] = {}
    truncation: dict[str, tf.Tensor] = {}


class Exportable(tf.Module, abc.ABC):
    """Answers of one Keras model, by signature. Subclasses give the head.

    Args:
        model: A model of this library, or its AlbertEncoder.
        options: What it is exported for.
        encoder: What takes the place of the inference encoder.
    """

    exit_kind = "classification"
    # Whether a row that the encoder reads is one that is answered, as those of windows and choices are not.
    rows_are_answers = True

    def __init__(self, model, options: ExportOptions, encoder: InferenceEncoder | None = None):
        super().__init__()
        self.options = options
        self.encoder = encoder or make_encoder(model, options.inference, options.calibration, options.max_seq_length)
        compute = self.encoder.options.compute
        self.cpu_check = CpuCheck(compute) if compute in NEEDS else None
        self.framer = None
        if options.tokenizer is not None:
            self.framer = TextFramer(options.tokenizer, options.max_seq_length)
            self.decoder = Decoder(self.framer)
        # None where nobody said whether texts come alone or in pairs.
        names = options.task.get("inputs")
        self.takes_pairs = None if names is None else len(names) == 2
        self._solved = _Solved()
        # Behind a closure: what is a module's attribute is saved with it.
        exits = self._exits(model)
        self.exit_heads = lambda: exits
        if options.exit_rule != "learned":
            self.encoder.exit_gate = None

    def _exits(self, model) -> list:
        """The heads to leave by, one a step; where nothing needs training, the one that there is, for every step."""
        if self.options.exit_rule == "movement" and self.encoder.config.spec.last_token:
            raise UserError("early exit by movement is not offered with relative positions (XLNet); leave it out")
        if self.options.exit_rule == "learned":
            check_exit(ExitRule(self.exit_kind, "learned"), model)
        if self.options.exit_rule == "movement":
            if isinstance(model, EarlyExitModel):
                return model.exit_heads or [model.head] * self.encoder.config.num_steps
            if self.exit_kind != "states":
                raise UserError(f"early exit by movement is not offered for a {type(model).__name__}; leave it out")
        return list(getattr(model, "exit_heads", []))

    @property
    def exits_early(self) -> bool:
        """Tells whether there is a signature by which rows leave early."""
        return bool(self.exit_heads())

    @abc.abstractmethod
    def answer(self, batch: TokenBatch) -> dict[str, tf.Tensor]:
        """Gives the model's outputs, each with the batch first."""

    def outputs(self, logits: tf.Tensor, batch: TokenBatch) -> dict[str, tf.Tensor]:
        """Gives what heads that can exit early make of their float32 logits."""
        raise NotImplementedError

    def answer_early(self, batch: TokenBatch, threshold: tf.Tensor) -> dict[str, tf.Tensor]:
        """Gives the outputs of a model with early exits, and how deep each row went as `steps` int32 [batch]."""
        exited = self._exited(batch, threshold)
        return self.outputs(exited["logits"], batch) | {"steps": exited["steps"]}

    def answer_with_memory(self, batch: TokenBatch, **features: tf.Tensor):
        """Gives the model's outputs of rows that follow others; `_reporting` adds what the next ones need."""
        return self.answer(FollowingBatch(*batch, features))

    def _exited(self, batch: TokenBatch, threshold: tf.Tensor) -> dict[str, tf.Tensor]:
        ids, rule = self._checked(batch.input_ids), ExitRule(self.exit_kind, self.options.exit_rule)
        return self.encoder.early_exit(
            ids, batch.lengths, batch.segment_ids, self.exit_heads(), threshold, rule, batch.mask
        )

    def encode(self, batch: TokenBatch) -> dict[str, tf.Tensor]:
        """Gives float32 sequence_output [batch, length, hidden_size] and, where there is a pooler, pooled_output."""
        if isinstance(batch, FollowingBatch):
            ids, mask, segments, features = batch
            outputs = self.encoder(self._checked(ids), None, segments, mask, **features)
        else:
            outputs = self._encode(*batch, batch.lengths)
        self._solved.outputs = {name: outputs[name] for name in self._reports if name in outputs}
        return outputs

    def pool(self, batch: TokenBatch) -> tf.Tensor:
        """Gives pooled_output alone, float32 [batch, hidden_size], without most of the last step."""
        if self.encoder.reports or isinstance(batch, FollowingBatch):
            return self.encode(batch)["pooled_output"]
        return self._pool(*batch, batch.lengths)

    @functools.cached_property
    def _encode(self):
        return self._shared(self.encoder)

    @functools.cached_property
    def _pool(self):
        return self._shared(self.encoder.pooled)

    def _shared(self, method):
        """One graph that all signatures call; behind a closure as the exit heads are."""

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

    def without_graphs(self) -> Self:
        """Gives a copy that traces the encoder anew."""
        twin = copy.copy(self)
        for traced in ("_encode", "_pool"):
            twin.__dict__.pop(traced, None)
        return twin

    def _checked(self, input_ids: tf.Tensor) -> tf.Tensor:
        limit = self.options.max_seq_length
        message = f"input_ids is longer than the {limit} tokens this model takes"
        with tf.control_dependencies([tf.debugging.assert_less_equal(tf.shape(input_ids)[1], limit, message)]):
            return tf.identity(input_ids)

    def signatures(self) -> dict[str, Signature]:
        """Gives all that a server offers; a model that takes strings also takes ids, as `ids`."""
        by_ids = self.ids_signatures()
        by_ids = {name: self._checking(self._reporting(signature)) for name, signature in by_ids.items()}
        if self.framer is None:
            return by_ids
        others = {name: signature for name, signature in by_ids.items() if name == "stateful"}
        by_text = {
            name: self._checking(self._counting(signature)) for name, signature in self.text_signatures().items()
        }
        return by_text | {"ids": by_ids["serving_default"], "decode": Signature(self.decode, _DECODED)} | others

    def ids_signatures(self) -> dict[str, Signature]:
        """Gives what a model offers that takes token ids."""
        ways = self.ids_ways
        default = ways.pair if self.takes_pairs else ways.single
        table = self.answers(Ways(default, ways.single, ways.pair, ways.examples)) | {
            "masked": ways.masked.to(self.answer),
            "int64": ways.int64.to(self.answer),
        }
        if (specs := self.encoder.specs) and self.rows_are_answers:
            table["stateful"] = ways.pair.to(self.answer_with_memory, specs)
        return table

    @property
    def ids_ways(self) -> IdsWays:
        """Gives the ways in by token ids, which differ where [CLS] is a row's last token."""
        return IDS_WAYS[self.encoder.config.spec.last_token]

    def summaries(self, batch: TokenBatch) -> tf.Tensor:
        """Gives the column of the token that stands for each row, int32 [batch]."""
        return summary_columns({"input_ids": batch.input_ids, "input_mask": batch.mask}, self.encoder.config)

    def text_signatures(self) -> dict[str, Signature]:
        """Gives what a model offers that takes strings."""
        single, pair = Way(specs("text"), self.single), Way(specs("first", "second"), self.pair)
        default = pair if self.takes_pairs else single
        examples = Way(specs("inputs"), lambda inputs: default.read(**_strings(inputs, default.inputs)))
        table = self.answers(Ways(default, single, pair, examples)) | {"tokenize": default.to(self.framer.describe)}
        table = table if self.takes_pairs is not None else table | {"pair": pair.to(self.answer)}
        table["with_options"] = self.with_options(default)
        return {name: self._reporting(signature) for name, signature in table.items()}

    def with_options(self, default: Way) -> Signature:
        """Returns the signature that answers as the default one, and has as inputs what a request may ask besides.

        These are `truncate_left`, bool [batch]: whether a text that is too long is cut at its beginning; and those that
        a subclass adds. Further outputs are `lengths`, int32 [batch], and what was truncated.
        """
        way = Way(default.inputs | specs("truncate_left", dtype=tf.bool), default.read)
        return way.to(lambda batch: self.answer(batch) | {"lengths": batch.lengths})

    def decode(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Gives the `text` of ids, string [batch]; see `Decoder`."""
        return {"text": self.decoder(**inputs)}

    def answers(self, ways: Ways) -> dict[str, Signature]:
        """Gives what the model answers whichever way rows come in; subclasses add to it."""
        table = {"serving_default": ways.default.to(self.answer)}
        if self.exits_early:
            table["early_exit"] = ways.default.to(self.answer_early, THRESHOLD)
        return table

    @property
    def _reports(self) -> set[str]:
        """Names of what the encoder says of each row besides its vectors."""
        return self.encoder.reports | self.encoder.specs.keys()

    def _reporting(self, signature: Signature) -> Signature:
        """Adds what the encoder says of each row (`_reports`) to what a signature for Predict gives."""
        if signature.method != PREDICT or not self.rows_are_answers:
            return signature

        def function(**inputs):
            self._solved.outputs = {}
            return signature.function(**inputs) | self._solved.outputs

        return signature._replace(function=function)

    def _checking(self, signature: Signature) -> Signature:
        """Has a signature fail, where that is asked for, in whose outputs a number is none."""
        if not self.options.check_numbers:
            return signature

        def checked(name: str, output: tf.Tensor) -> tf.Tensor:
            is_float = output.dtype.is_floating
            return tf.debugging.check_numerics(output, f"{name} holds NaN or infinity") if is_float else output

        def function(**inputs):
            return {name: checked(name, output) for name, output in signature.function(**inputs).items()}

        return signature._replace(function=function)

    def _counting(self, signature: Signature) -> Signature:
        """Adds to what a signature of texts gives how many of their tokens the model did not read.

        A single output stays alone: REST answers with plain values in place of objects by name then.
        """
        if signature.method != PREDICT:
            return signature

        def function(**inputs):
            self._solved.truncation = {}
            answers = signature.function(**inputs)
            return answers | self._solved.truncation if len(answers) > 1 else answers

        return signature._replace(function=function)

    def note_truncation(self, total: tf.Tensor, kept: tf.Tensor) -> None:
        """Notes the tokens of each row's texts, [batch]: `total`, and those of them that the model is given."""
        total, kept = tf.cast(total, tf.int32), tf.cast(kept, tf.int32)
        self._solved.truncation = {"text_tokens": total, "truncated_tokens": total - kept}

    def framed(self, rows: FramedRows, *tokens: tf.RaggedTensor) -> TokenBatch:
        """Pads the rows made of the tokens of one text, or of two, and notes what did not fit."""
        total = sum(of_text.row_lengths() for of_text in tokens)
        self.note_truncation(total, rows.input_ids.row_lengths() - self.framer.special_tokens(len(tokens)))
        return rows.padded()

    def single(self, text: tf.Tensor, truncate_left: tf.Tensor | None = None) -> TokenBatch:
        """Reads strings [batch]; `truncate_left`, bool [batch]: those cut at their beginning."""
        (tokens,) = self.framer.tokenize(text)
        return self.framed(self.framer.single(tokens, truncate_left), tokens)

    def pair(self, first: tf.Tensor, second: tf.Tensor, truncate_left: tf.Tensor | None = None) -> TokenBatch:
        """Reads pairs of strings, each [batch]; `truncate_left` as in `single`."""
        tokens = self.framer.tokenize(first, second)
        return self.framed(self.framer.pair(tokens[0], tokens[1], truncate_left), *tokens)


class DenseHeadExportable(Exportable):
    """A model with one dense layer on top, in float32; its `outputs` are of that layer on pooled_output."""

    def __init__(self, model, options: ExportOptions, encoder: InferenceEncoder | None = None):
        super().__init__(model, options, encoder)
        self.head = dense(model.head, tf.float32)

    def answer(self, batch: TokenBatch):
        return self.outputs(self.head(self.pool(batch)), batch)


def _strings(examples: tf.Tensor, names) -> dict[str, tf.Tensor]:
    """The named string features of serialized tf.Examples."""
    return tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
