"""The whole encoder as a tf.Module: what `serving.export` puts heads on."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.layers.depth import Segment, plan, segments
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.exit_rules import ExitRule
from serving.cpu import describe_needs
from serving.inference.attention import Rows
from serving.inference.calibration import quantize_encoder
from serving.inference.dense import dense, norm, norm_in_one_pass
from serving.inference.depth import Halting, HyperConnections, StepSignal
from serving.inference.early_exit import EarlyExit, Gate, any_size
from serving.inference.equilibrium import InferenceEquilibrium
from serving.inference.int8 import check_kernels
from serving.inference.layers import Attention, Embeddings, FeedForward
from serving.inference.options import InferenceOptions, check_runs_here
from serving.inference.relative import RelativeScores
from serving.inference.rows import FlatBatch, longest_block
from tfrecords.base.cpu import has_only_avx2
from tfrecords.base.errors import UserError

# Tokens whose streams share a product; where padding is skipped their number is rounded up to multiples of it.
_TOGETHER = 4


def make_encoder(
    model, options: InferenceOptions | None = None, calibration=None, max_seq_length: int | None = None
) -> "InferenceEncoder":
    """Makes the inference twin of a Keras model's encoder, which holds weights of its own.

    To be called in a tf.function: oneDNN's ops do not run eagerly.

    Args:
        model: A Keras model with an `encoder`, or an AlbertEncoder.
        options: How to compute; float32 without padding where None.
        calibration: For int8, rows like those to come, the ranges of 8-bit numbers being taken from them: input_ids
            int32 [rows, length] and lengths int32 [rows]. Random ids where None, with a wider margin.

        max_seq_length: Where positions are relative, the length of the longest row, in tokens; None: the model's.

    Returns:
        The twin: a function of token ids and lengths.

    Raises:
        UserError: the options ask for what this encoder or this TensorFlow cannot do.

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
    twin = InferenceEncoder(encoder, (options or InferenceOptions()).resolved(), calibration, max_seq_length)
    gate = getattr(model, "exit_gate", None)
    twin.exit_gate = None if gate is None else Gate(gate)
    return twin


class InferenceEncoder(tf.Module):
    """An encoder that gives the numbers of AlbertEncoder at every real token; `make_encoder` makes it.

    Attributes:
        exit_gate: the Gate of a model that has learned when to leave, or None.
    """

    exit_gate: Gate | None = None

    def __init__(
        self, encoder: AlbertEncoder, options: InferenceOptions, calibration=None, max_seq_length: int | None = None
    ):
        super().__init__()
        self.config, self.options = encoder.config, options
        self.max_seq_length = max_seq_length or self.config.max_seq_length
        check_runs_here(options)
        dtype = options.dtype
        # Of the vectors that go from step to step. With pre-norm they are sums over all steps, which nothing normalizes
        # on the way: in bfloat16 each step would round what all before it gave.
        self.dtype = tf.float32 if self.config.norm_position == "pre" else dtype
        self.final_norm = None if encoder.final_norm is None else norm(encoder.final_norm)
        self.embeddings = Embeddings(encoder.embeddings, dtype)
        self.pooler = None if encoder.pooler is None else dense(encoder.pooler, tf.float32)
        weights_first = options.compute == "float32" and has_only_avx2()
        attentions = encoder.halves_of("attention")
        relations: list[Any] = [None] * len(attentions)
        if self.config.position_type == "relative":
            longest = longest_block(self.max_seq_length)
            places = self.config.memory_length
            relations = [RelativeScores(half, longest, places, dtype) for half in attentions]
        self.attentions: list[Any] = [
            Attention(half, dtype, weights_first, relative) for half, relative in zip(attentions, relations)
        ]
        self.feed_forwards: list[Any] = [
            FeedForward(half, dtype, weights_first) for half in encoder.halves_of("feed_forward")
        ]
        extensions = {layer.extension.name: layer for layer in encoder.held_layers()}
        # The same for every batch: no variable of the module.
        self.equilibrium = None if "equilibrium" not in extensions else InferenceEquilibrium(encoder)
        self.step_signal = self.connections = None
        self.halting = None if "halting" not in extensions else Halting(extensions["halting"])
        if "step_signal" in extensions:
            self.step_signal = StepSignal(extensions["step_signal"], self.dtype)
        if "hyper_connections" in extensions:
            together = _TOGETHER if options.padding == "skipped" else 1
            self.connections = HyperConnections(extensions["hyper_connections"], self.dtype, together)
        if options.is_quantized:
            if not options.other_cpu:
                check_kernels()
            quantize_encoder(self, encoder, calibration, vnni=options.compute == "int8_vnni")
        if options.performance_hint == "throughput":
            norm_in_one_pass([*self.attentions, *self.feed_forwards])

    def describe(self) -> dict[str, str]:
        """Describes the options as they were decided, and what a server needs for them, for a manifest."""
        needs = ["TensorFlow" if self.options.compute == "float32" else "TensorFlow for x86 with oneDNN"]
        needs += filter(None, [describe_needs(self.options.compute)])
        how = {name: getattr(self.options, name) for name in ("compute", "padding", "performance_hint")}
        return how | {"requires": ", a CPU with ".join(needs)}

    def __call__(self, input_ids, lengths, segment_ids=None, input_mask=None) -> dict[str, tf.Tensor]:
        """Encodes a batch.

        Args:
            input_ids: int32 [batch, length].
            lengths: int32 [batch], real tokens of each row; or None where `input_mask` is given, which goes first.
            segment_ids: int32 [batch, length]; all 0 where None.
            input_mask: int32 [batch, length], 1 for tokens.

        Returns:
            sequence_output float32 [batch, length, hidden_size], where there is a pooler, pooled_output float32 [batch,
            hidden_size], of a walk to an equilibrium residual float32 [batch] and steps int32 [batch], and of tokens
            that halt steps int32 [batch, length], 0 where nothing was computed.
        """
        return self._by_size(self._outputs, input_ids, lengths, segment_ids, input_mask)

    def _outputs(self, batch: FlatBatch, state: Any) -> dict[str, tf.Tensor]:
        solved = {}
        if self.equilibrium is None:
            state = self._walk(segments(self.config), state, batch.rows)
        else:
            state, solved = self._solve(state, batch)
        if self.halting is not None:
            solved["steps"] = tf.cast(batch.rectangle(state[1].steps[:, tf.newaxis])[:, :, 0], tf.int32)
        return self.answers(batch, self.finish(state)) | solved

    def answers(self, batch: Any, hidden: tf.Tensor) -> dict[str, tf.Tensor]:
        """Gives sequence_output and, where there is a pooler, pooled_output of [tokens, hidden_size]."""
        outputs = {"sequence_output": batch.rectangle(hidden)}
        if self.pooler is not None:
            outputs["pooled_output"] = self._pool(batch, batch.rows.summary_tokens(hidden))
        return outputs

    def pooled(self, input_ids, lengths, segment_ids=None, input_mask=None) -> tf.Tensor:
        """Gives pooled_output alone, of a model with a pooler: the last step is computed for summary tokens only."""
        if self.tells_steps:
            return self(input_ids, lengths, segment_ids, input_mask)["pooled_output"]
        return self._by_size(self._pooled, input_ids, lengths, segment_ids, input_mask)

    def _pooled(self, batch: FlatBatch, state: Any) -> tf.Tensor:
        last = plan(self.config)[-1]
        state = self._walk(_without_last_step(segments(self.config)), state, batch.rows)
        state = self.apply(last, len(plan(self.config)) - 1, state, batch.rows, only_summary=True)
        return self._pool(batch, self.finish(state))

    def early_exit(
        self, input_ids, lengths, segment_ids, exit_heads: Sequence, threshold, rule: ExitRule, input_mask=None
    ) -> dict[str, tf.Tensor]:
        """Answers with a head after every step; rows that `rule` finds decided leave the batch.

        Args:
            input_ids: See `__call__`, as for the next two and `input_mask`.
            lengths: int32 [batch].
            segment_ids: int32 [batch, length].
            exit_heads: A Keras dense layer for each step of the plan; none where the rule is for "states".
            threshold: float32 [batch], each row's own, what it means being the rule's.
            rule: When a row is decided.
            input_mask: int32 [batch, length].

        Returns:
            logits float32 [batch, units] ([batch, length, units] where the rule is for tokens, 0 at padding), or for
            "states" what `__call__` gives; and steps int32 [batch], how many steps each row took.

        Raises:
            UserError: the heads are not one for each step, or there is no gate for the rule.
        """
        if self.equilibrium is not None:
            raise UserError(
                "early exit leaves between steps, and a walk to an equilibrium stops by itself; leave it out"
            )
        if self.halting is not None:
            raise UserError(f"early exit and halting '{self.config.halting}' exclude each other; leave it out")
        if self.config.spec.last_token:
            raise UserError(
                "a row exits early by its first token, and relative positions have [CLS] last; leave it out"
            )
        count = len(plan(self.config))
        if len(exit_heads) != (0 if rule.kind == "states" else count):
            raise UserError(f"early exit needs {count} heads, one a step; there are {len(exit_heads)}")
        if rule.name == "learned" and self.exit_gate is None:
            raise UserError("early exit by learned needs a model that has learned when to leave: --learned_exit")
        batch, depth_state = self._begin(input_ids, lengths, segment_ids, input_mask)
        walk = EarlyExit(self, batch, exit_heads, rule, count)
        state = walk.start(depth_state, threshold)
        for segment in segments(self.config):
            state = walk.repeat(segment, state)
        results = walk.results(state)
        if rule.kind == "states":
            results["sequence_output"] = results.pop("logits")
            if self.pooler is not None:
                results["pooled_output"] = tf.tanh(self.pooler(results["sequence_output"][:, 0]))
        return results

    def _by_size(self, answer: Callable, input_ids, *others) -> Any:
        """What `answer` gives of a batch and the state before the first step: of one row by a graph of its own.

        An online service sends mostly these, and of the time of few tokens the tables of rows are a part.
        """
        batch = functools.partial(self._begin, input_ids, *others)
        if self.options.padding == "computed" or self.equilibrium is not None:
            return answer(*batch())
        if (count := tf.convert_to_tensor(input_ids).shape[0]) is not None:
            return answer(*batch(one_row=count == 1))
        is_one = tf.shape(input_ids)[0] == 1
        return tf.cond(is_one, lambda: answer(*batch(one_row=True)), lambda: answer(*batch()))

    def _begin(self, input_ids, lengths, segment_ids, input_mask, *, one_row: bool = False) -> tuple[FlatBatch, Any]:
        mask = tf.sequence_mask(lengths, tf.shape(input_ids)[1]) if input_mask is None else tf.cast(input_mask, tf.bool)
        # Grappler (TensorFlow 2.21) takes a size that is known where a loop begins for the size in its later rounds
        # too, and folds it into the graph; rows leave in a loop, so no size may be known.
        mask = tf.compat.v1.placeholder_with_default(mask, [None, None])
        is_relative = self.config.position_type == "relative"
        skips_padding, segments = self.options.padding == "skipped", segment_ids if is_relative else None
        batch = FlatBatch(mask, self.config, skips_padding, one_row, segments)
        if is_relative and one_row:
            batch.rows.prepare([half.relative for half in self.attentions])
        return batch, self.start(tf.cast(self.embeddings(input_ids, segment_ids, batch.computed), self.dtype))

    def start(self, hidden: tf.Tensor) -> Any:
        """The state before the first step: a tensor, or tensors in tuples, the first axis of each being the tokens."""
        state = hidden if self.connections is None else self.connections.start(hidden)
        return state if self.halting is None else (state, self.halting.start(hidden))

    def apply(self, which, step, state: Any, rows: Rows, only_summary: bool = False) -> Any:
        """One step: `which` weights (a depth.Step), `step` its number in the plan, an int or a scalar tensor.

        only_summary: the new state is of the token alone that stands for each row.
        """
        if self.halting is not None:
            return self._halt(which, step, state, rows)
        return self._run(which, step, state, rows, only_summary)[1]

    def hidden(self, state: Any) -> tf.Tensor:
        """What travels, whatever of it a step reads: [tokens, hidden_size]."""
        return self._carried(state if self.halting is None else state[0])

    def finish(self, state: Any) -> tf.Tensor:
        """What a state comes to if it is the last, which heads of an early exit read."""
        hidden = self.hidden(state) if self.halting is None else state[1].result
        return hidden if self.final_norm is None else self.final_norm(hidden)

    @property
    def tells_steps(self) -> bool:
        """Whether answers tell how many steps they took, which only the whole batch knows."""
        return self.equilibrium is not None or self.halting is not None

    def _halt(self, which, step, state: tuple, rows: Rows) -> tuple:
        """As `apply`; what has halted is computed on, since it is attended to."""
        state, sums = state
        before, state = self._run(which, step, state, rows)
        return state, self.halting.update(step, before, self._carried(state), sums)

    def _carried(self, state: tf.Tensor) -> tf.Tensor:
        return state if self.connections is None else self.connections.mean(state)

    def _run(self, which, step, state: tf.Tensor, rows: Rows, only_summary=False) -> tuple[tf.Tensor, tf.Tensor]:
        """What the step's block reads, [tokens, hidden_size], and the state after it."""
        before, gates = (state, None) if self.connections is None else self.connections.read(step, state)
        if self.step_signal is not None:
            before = self.step_signal(before, step)
        window = self.config.extension("window")
        is_local = window is not None and window.is_local(which)
        hidden = self.attentions[which.attention](before, rows, step, only_summary, is_local)
        hidden = self.feed_forwards[which.feed_forward](hidden, step)
        if self.connections is None:
            return before, hidden
        if only_summary:
            state, gates = rows.summary_tokens(state), rows.summary_tokens(gates)
        return before, self.connections.write(step, state, hidden, gates, only_summary)

    def _pool(self, batch: FlatBatch, summary_tokens: tf.Tensor) -> tf.Tensor:
        return tf.tanh(self.pooler(batch.restore(summary_tokens)))

    def _walk(self, runs, state: Any, rows: Rows) -> Any:
        done = 0
        for run in runs:
            state = self._repeat(run, done, state, rows)
            done += run.repeats * len(run.steps)
        return state

    def _solve(self, state: tf.Tensor, batch: FlatBatch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """As `_walk`, but the run that repeats goes to its fixed point; also residual and steps by row of the batch."""
        runs, solved = segments(self.config), {}
        done = [sum(run.repeats * len(run.steps) for run in runs[:place]) for place in range(len(runs))]
        for place, (run, first) in enumerate(zip(runs, done)):
            once = functools.partial(self._repeat, Segment(run.steps, 1), first, rows=batch.rows)
            if place != self.equilibrium.place:
                state = once(state)
                continue
            solution = self.equilibrium.solve(once, state, batch)
            state = tf.cast(solution.state, state.dtype)
            order = tf.math.invert_permutation(batch.order)
            solved = {"residual": tf.gather(solution.residual, order), "steps": tf.gather(solution.steps, order)}
        return state, solved

    def _repeat(self, segment, done: int, state: Any, rows: Rows) -> Any:
        def cycle(step, state):
            for offset, which in enumerate(segment.steps):
                state = self.apply(which, step + offset, state, rows)
            return step + len(segment.steps), state

        if segment.repeats == 1:
            return cycle(done, state)[1]
        end = done + segment.repeats * len(segment.steps)
        shapes = (tf.TensorShape([]), tf.nest.map_structure(any_size, state))

        def goes_on(step, state):
            return step < end if self.halting is None else (step < end) & tf.reduce_any(state[1].running > 0)

        return tf.while_loop(goes_on, cycle, (tf.constant(done), state), shapes)[1]


def _without_last_step(runs: list[Segment]) -> list[Segment]:
    *others, last = runs
    return [
        *others,
        *([Segment(last.steps, last.repeats - 1)] if last.repeats > 1 else []),
        *([Segment(last.steps[:-1], 1)] if len(last.steps) > 1 else []),
    ]
