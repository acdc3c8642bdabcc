"""The inference encoder, a tf.Module that all exports contain."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.block import Attention, Step
from albert_tf.layers.depth import BlockRunner, DepthLoop, Runner, Segment, segments
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.exit_rules import ExitRule, check_exits
from albert_tf.models.heads import mean_pool
from serving.export_settings import COMPUTE
from serving.inference import onednn
from serving.inference.early_exit import exit_early
from serving.inference.int8 import quantize_encoder
from serving.inference.kernels import AttentionHalf, FeedForwardHalf, FloatKernels, KernelSettings, exported_extensions
from serving.inference.layers import ExportedEmbeddings, ExportedNorm, dense, norm
from serving.inference.rows import FlatBatch, FlatRows, OneRow, for_long_rows
from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import bfloat16_flags, has_only_avx2


@dataclasses.dataclass(frozen=True)
class InferenceOptions:
    """Options of the inference encoder, named as ExportSettings' flags.

    "bfloat16" and "int8" need oneDNN; "int8" is correct on every x86 CPU. "auto" chooses for this CPU. `other_cpu`
    skips the check that this CPU can run the encoder. An impossible choice raises UserError.
    """

    compute: str = "float32"
    other_cpu: bool = False

    def __post_init__(self):
        if self.compute not in (*COMPUTE, "auto"):
            raise UserError(f"compute '{self.compute}' is none of {', '.join(COMPUTE)}, auto")

    def resolved(self) -> Self:
        """Replaces "auto" by the choice for this CPU."""
        if self.compute != "auto":
            return self
        return dataclasses.replace(self, compute="bfloat16" if bfloat16_flags() else "float32")

    @property
    def dtype(self) -> tf.DType:
        """The type of everything that is not in 8 bits: float32 for int8, as CPUs may lack bfloat16 products."""
        return tf.bfloat16 if self.compute == "bfloat16" else tf.float32


def check_runs_here(options: InferenceOptions, hidden_act: str) -> None:
    """Raises UserError if the options cannot run here, unless they are for another CPU.

    It checks the CPU first: without AVX-512 a bfloat16 product ends the process.
    """
    if options.compute == "float32" or options.other_cpu:
        return
    if not onednn.can_run(options.compute):
        raise UserError(
            "bfloat16 cannot run here: this CPU has no AVX-512; choose float32 or int8, or export with --other_cpu for "
            "one that can"
        )
    onednn.require(options.compute, hidden_act)


def make_encoder(
    model, options: InferenceOptions | None = None, calibration=None, max_seq_length: int | None = None
) -> "InferenceEncoder":
    """Makes the inference encoder of a Keras model, with its own copy of the weights.

    Call the encoder in a tf.function: oneDNN's ops do not run eagerly. For int8, `calibration` is typical rows as a
    pair: input_ids int32 [rows, length], lengths int32 [rows]; by default random ids. `max_seq_length` is by default
    the model's.

    Raises:
        UserError: This encoder or this TensorFlow does not support the options.

    >>> import numpy as np
    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16)
    >>> encode = tf.function(make_encoder(AlbertEncoder(config)), autograph=False)
    >>> outputs = encode(np.array([[2, 11, 12, 3]], "int32"), lengths=np.array([4], "int32"))
    >>> outputs["pooled_output"].shape
    TensorShape([1, 8])
    """
    encoder = getattr(model, "encoder", model)
    return InferenceEncoder(encoder, (options or InferenceOptions()).resolved(), calibration, max_seq_length)


# What answers as the TensorFlow that exports does, by `scripts.published_server versions`.
OLDEST = "TensorFlow 2.17 or later"


class SummaryLoop(DepthLoop):
    """A depth loop whose last step computes only the token that represents each row."""

    def segments(self, config: AlbertConfig) -> list[Segment]:
        *others, last = segments(config)
        others += [Segment(last.steps, last.repeats - 1)] if last.repeats > 1 else []
        others += [Segment(last.steps[:-1], 1)] if len(last.steps) > 1 else []
        return [*others, Segment(last.steps[-1:], 1)]

    def step(self, step: Step, state: Any) -> Any:
        is_last = isinstance(step.number, int) and step.number == self.runner.config.num_steps - 1
        return super().step(step._replace(only_summary=is_last), state)


class InferenceEncoder(tf.Module):
    """Computes the same values as AlbertEncoder at every real token of a batch; `make_encoder` creates it."""

    # Whether extensions are those for LiteRT, the class for batches of several rows, and whether an export tokenizes in
    # its graph.
    for_litert, rows_class, takes_texts = False, FlatRows, True

    def __init__(
        self, encoder: AlbertEncoder, options: InferenceOptions, calibration=None, max_seq_length: int | None = None
    ):
        super().__init__()
        self.config, self.options = encoder.config, options
        check_runs_here(options, self.config.hidden_act)
        dtype = options.dtype
        # Of the vectors that go from step to step. With pre-norm they are sums over all steps, which nothing normalizes
        # on the way: in bfloat16 each step would round what all before it gave.
        self.dtype = tf.float32 if self.config.norm_position == "pre" else dtype
        longest = max_seq_length or self.config.max_seq_length
        self.settings = KernelSettings(dtype, longest)
        self.final_norm = None if encoder.final_norm is None else ExportedNorm(encoder.final_norm)
        self.embeddings = ExportedEmbeddings(encoder.embeddings, dtype)
        self.pooler = None if encoder.pooler is None else dense(encoder.pooler, tf.float32, self.config.pooler_act)
        self.pooler_norm = None if encoder.pooler_norm is None else norm(encoder.pooler_norm)
        self.extensions = exported_extensions(encoder, self.settings, self.for_litert)
        weights_first = options.compute == "float32" and has_only_avx2()
        self.attentions, self.feed_forwards = (
            [half(one, i, self.extensions, dtype, weights_first) for i, one in enumerate(encoder.halves_of(kind))]
            for kind, half in (("attention", AttentionHalf), ("feed_forward", FeedForwardHalf))
        )
        self.kernels = FloatKernels(self.config, self.attentions, self.feed_forwards)
        if options.compute == "int8":
            self.kernels = quantize_encoder(self, calibration)

    def describe(self) -> dict[str, Any]:
        compute = self.options.compute
        needs = OLDEST if compute == "float32" else f"{OLDEST} for x86 with oneDNN"
        if compute == "bfloat16":
            needs += f", a CPU with {', '.join(onednn.BFLOAT16_NEEDS)}"
        return {"compute": compute, "requires": needs}

    def __call__(self, input_ids, lengths, segment_ids=None, input_mask=None) -> dict[str, Tensor]:
        """Encodes int32 input_ids [batch, length] with lengths [batch] or, if given, input_mask [batch, length].

        Returns:
            sequence_output float32 [batch, length, hidden_size]; with a pooler, pooled_output float32 [batch,
            hidden_size]; outputs of extensions.
        """
        return self._by_size(self._outputs, input_ids, lengths, segment_ids, input_mask)

    def _outputs(self, runner: Runner, state: Any) -> dict[str, Tensor]:
        state = DepthLoop("loop", stops=True)(runner, state)
        hidden = self.finish(runner.result(state))
        outputs = {"sequence_output": runner.rows.rectangle(hidden)}
        if self.pooler is not None:
            sequence, mask = outputs["sequence_output"], runner.rows.batch.mask
            if self.config.pooling == "mean":
                outputs["pooled_output"] = self.apply_pooler(mean_pool(sequence, mask))
            elif self.config.pooling == "late":
                outputs["pooled_output"] = mean_pool(self.pool_tokens(sequence), mask)
            else:
                outputs["pooled_output"] = self._pool(runner, runner.rows.summary_tokens(hidden))
        return outputs | runner.report(state)[0]

    def pooled(self, input_ids, lengths, segment_ids=None, input_mask=None) -> Tensor:
        """Returns only `pooled_output`; if `reports` is empty, the last step computes one token per row."""
        if self.reports or self.config.pooling != "cls":
            return self(input_ids, lengths, segment_ids, input_mask)["pooled_output"]
        return self._by_size(self._pooled, input_ids, lengths, segment_ids, input_mask)

    def _pooled(self, runner: Runner, state: Any) -> Tensor:
        state = SummaryLoop("loop", stops=True)(runner, state)
        return self._pool(runner, self.finish(runner.result(state)))

    @property
    def reports(self) -> set[str]:
        """The names of the extensions' outputs; these need all tokens of the last step."""
        return {name for one in self.extensions for name in one.extension.outputs}

    def early_exit(
        self, input_ids, lengths, segment_ids, exit_heads: Sequence, threshold, rule: ExitRule, input_mask=None
    ) -> dict[str, Tensor]:
        """Encodes with early exit: a head answers after every step; rows leave the batch when `rule` is met.

        `exit_heads` are Keras dense layers, one per step; none if the rule's kind is "states". `threshold` is float32
        [batch], in the rule's unit.

        Returns:
            steps int32 [batch]; logits float32 [batch, units] or, for tagging, [batch, length, units], 0
            at padding; for "states", not logits but the outputs of `__call__`.

        Raises:
            UserError: The number of heads is wrong.
        """
        check_exits(self.config)
        count = self.config.num_steps
        if len(exit_heads) != (0 if rule.kind == "states" else count):
            raise UserError(f"early exit needs {count} heads, one a step; there are {len(exit_heads)}")
        features = {} if segment_ids is None else {"segment_ids": segment_ids}
        runner, state = self._begin(input_ids, lengths, segment_ids, input_mask)
        results = exit_early(self, runner, state, exit_heads, threshold, rule, features)
        if rule.kind == "states":
            results["sequence_output"] = results.pop("logits")
            if self.pooler is not None:
                results["pooled_output"] = self.apply_pooler(results["sequence_output"][:, 0])
        return results

    def _by_size(self, answer: Callable, input_ids: Any, *others: Any) -> Any:
        begin = functools.partial(self._begin, input_ids, *others)
        if not all(one.has_one_row for one in self.extensions):
            return answer(*begin())
        if (count := tf.convert_to_tensor(input_ids).shape[0]) is not None:
            return answer(*begin(one_row=count == 1))
        is_one = tf.shape(input_ids)[0] == 1
        return tf.cond(is_one, lambda: answer(*begin(one_row=True)), lambda: answer(*begin()))

    def _begin(self, input_ids, lengths, segment_ids, input_mask, *, one_row: bool = False) -> tuple[Runner, Any]:
        batch = self._batch(input_ids, lengths, input_mask, one_row)
        rows = self.rows(batch, {"segment_ids": segment_ids}, one_row=one_row)
        hidden = tf.cast(self.embeddings(input_ids, segment_ids, batch.computed), self.dtype)
        runner = self.runner(rows)
        return runner, runner.begin(hidden)

    def _batch(self, input_ids, lengths, input_mask, one_row: bool) -> Any:
        mask = real_tokens(lengths, input_ids, input_mask)
        # Grappler (TensorFlow 2.21) takes a size that is known where a loop begins for the size in its later rounds
        # too, and folds it into the graph; rows leave in a loop, so no size may be known.
        mask = tf.compat.v1.placeholder_with_default(mask, [None, None])
        return FlatBatch(mask, self.config, one_row)

    def rows(self, batch: FlatBatch, features: dict, kernels: FloatKernels | None = None, one_row: bool = False) -> Any:
        kernels = kernels or self.kernels
        features = {name: value for name, value in features.items() if value is not None}
        attention = Attention(kernels.softmax, *kernels.scale, multiply=kernels.multiply)
        for one in self.extensions:
            attention = one.attention(attention)
        attention = attention if self.for_litert else for_long_rows(attention, self.settings.longest)
        rows = (OneRow if one_row else self.rows_class)(batch, self.config, attention)
        return self.with_features(rows, features)

    def with_features(self, rows: Any, features: dict) -> Any:
        for one in self.extensions:
            rows = one.rows(rows, features)
        for one in self.extensions:
            one.hoist(rows)
        return rows

    def runner(self, rows: Any, kernels: FloatKernels | None = None) -> Runner:
        runner: Runner = BlockRunner(self.config, kernels or self.kernels, rows)
        for one in sorted(self.extensions, key=lambda one: one.extension.order):
            runner = one.around(runner)
        return runner

    def finish(self, hidden: Tensor) -> Tensor:
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _pool(self, runner: Runner, summary_tokens: Tensor) -> Tensor:
        return self.apply_pooler(tf.cast(runner.rows.restore(summary_tokens), tf.float32))

    def apply_pooler(self, vectors: Tensor) -> Tensor:
        """Applies the pooler to float32 vectors [vectors, hidden_size]."""
        pooled = self.pooler(vectors)
        return pooled if self.pooler_norm is None else self.pooler_norm(pooled)

    def of_tokens(self, vectors: Tensor) -> Tensor:
        """Returns what a head for tokens or spans reads of sequence_output, [..., hidden_size]."""
        return vectors if self.pooler_norm is None else self.pool_tokens(vectors)

    def pool_tokens(self, vectors: Tensor) -> Tensor:
        """Applies the pooler to each of vectors [..., hidden_size]."""
        return tf.reshape(self.apply_pooler(tf.reshape(vectors, [-1, self.config.hidden_size])), tf.shape(vectors))


def real_tokens(lengths: Tensor, input_ids: Tensor, input_mask: Tensor | None) -> Tensor:
    """Returns the mask of real tokens, bool [batch, length]; `input_mask` overrides `lengths`."""
    return tf.sequence_mask(lengths, tf.shape(input_ids)[1]) if input_mask is None else tf.cast(input_mask, tf.bool)
