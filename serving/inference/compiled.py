"""The engine "xla": loading an export compiles it for single rows of a few lengths."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.block import Attention, Step
from albert_tf.layers.depth import BlockRunner, DepthLoop
from serving.cpu import LoadCheck, content_of
from serving.inference.kernels import ExportedExtension, FloatKernels, LowRank
from serving.inference.layers import ExportedDense, ExportedLayerNorm, ExportedRMSNorm, TransposedDense, act, variable
from serving.inference.rows import attend_from_first
from serving.inference.tables import MASKED_SCORE

FLAG = "--xla_cpu_compilation_enabled=true"
_COMMAND_LINE = "/proc/self/cmdline"
# tensorflow_model_server, whose flags are separated by NUL, without that flag.
_REAL_SERVER = r"(?s)([^\x00]*/)?tensorflow_model_server\x00.*"
_WITH_FLAG = r"(?s).*\x00--?xla_cpu_compilation_enabled(=(true|1|t|yes|y))?\x00.*"


class CompiledSteps(tf.Module):
    """Runs all steps of an encoder over one row, compiled for a few lengths.

    A row is padded to the smallest of the ascending lengths that holds it; `lengths` maps each to its shortest row.
    """

    def __init__(
        self,
        config: AlbertConfig,
        extensions: Sequence[ExportedExtension],
        halves: Sequence[Sequence[Any]],
        final_norm: ExportedLayerNorm | ExportedRMSNorm | None,
        lengths: Mapping[int, int],
        summary_loop: DepthLoop,
    ):
        super().__init__()
        self.config, self.lengths, self.extensions = config, tuple(lengths), extensions
        self.shortest = tuple(lengths.values())
        self.summary_loop = summary_loop
        self.halves = [[_TurnedHalf(half) for half in every] for every in halves]
        self.final_norm = None if final_norm is None else _TurnedNorm(final_norm)
        graphs = dict[bool, Callable]()

        def graph(only_summary: bool) -> Callable:
            if only_summary not in graphs:
                rows = tf.TensorSpec([1, None, config.hidden_size]), tf.TensorSpec([1, None], tf.bool)
                run = functools.partial(self._run, only_summary)
                with tf.init_scope():
                    function = tf.function(run, jit_compile=True, autograph=False)
                    # One graph for all callers: XLA caches what it compiles by the graph's name.
                    graphs[only_summary] = function.get_concrete_function(*rows)
            return graphs[only_summary]

        # In closures, so that they are not saved as attributes.
        self._graph, self.at_load = graph, _Compilation(lambda: graphs.values(), config.hidden_size, self.lengths)

    def fits(self, mask: Tensor) -> Tensor:
        """Returns whether a mask [batch, length] is of a single row for which a length was compiled."""
        width = _width(mask)
        place = tf.minimum(tf.searchsorted(self.lengths, [width])[0], len(self.lengths) - 1)
        is_within = (width >= tf.gather(self.shortest, place)) & (width <= tf.gather(self.lengths, place))
        return (tf.shape(mask)[0] == 1) & is_within

    def __call__(
        self, embed: Callable, input_ids: Tensor, segment_ids: Tensor | None, mask: Tensor, only_summary: bool
    ) -> Tensor:
        """Returns float32 [1, length, hidden_size], or with `only_summary` the first token's [1, hidden_size].

        `embed` runs outside XLA, which would replace an id beyond the vocabulary by the last one.
        """
        width, length = _width(mask), tf.shape(mask)[1]
        padded = tf.gather(self.lengths, tf.searchsorted(self.lengths, [width]))[0]

        def pad(matrix: Tensor) -> Tensor:
            return tf.pad(matrix[:, :width], [[0, 0], [0, padded - width]])

        segments = None if segment_ids is None else pad(segment_ids)
        hidden, is_real = embed(pad(input_ids), segments, tf.range(padded)), pad(mask)
        hidden = self._graph(only_summary)(hidden[tf.newaxis], is_real)
        if only_summary:
            return hidden
        hidden = tf.where(is_real[:, :, tf.newaxis], hidden, 0.0)[:, :width]
        return tf.pad(hidden, [[0, 0], [0, length - width], [0, 0]])

    def _run(self, only_summary: bool, hidden: Tensor, mask: Tensor) -> Tensor:
        kernels = FloatKernels(self.config, *self.halves)
        attention = Attention(kernels.softmax, *kernels.scale, multiply=kernels.multiply)
        for one in self.extensions:
            attention = one.compiled(attention)
        row: Any = _TurnedRow(mask, self.config, attention)
        for one in self.extensions:
            row = one.rows(row, {})
        runner = BlockRunner(self.config, kernels, row)
        loop = self.summary_loop if only_summary else DepthLoop("loop")
        state = loop(runner, tf.transpose(hidden[0]))
        state = state if self.final_norm is None else self.final_norm(state)
        return tf.transpose(state) if only_summary else tf.transpose(state)[tf.newaxis]


class _Compilation(LoadCheck):
    """Compiles all graphs when an export is loaded, which fails if tensorflow_model_server lacks FLAG."""

    def __init__(self, graphs: Callable, hidden_size: int, lengths: Sequence[int]):
        super().__init__()
        self._graphs, self._hidden_size, self._lengths = graphs, hidden_size, lengths

    def _initialize(self):
        command = content_of(_COMMAND_LINE)
        is_off = tf.strings.regex_full_match(command, _REAL_SERVER)
        is_off &= ~tf.strings.regex_full_match(command, _WITH_FLAG)
        message = f"this servable was exported with --engine=xla; start tensorflow_model_server with {FLAG}"
        with tf.control_dependencies([tf.debugging.Assert(~is_off, [message])]):
            start = tf.timestamp()
        compiled = [start]
        # TensorFlow's own message is "XLA compilation disabled", with this name.
        with tf.name_scope("start_the_server_with_xla_cpu_compilation_enabled"):
            for graph in self._graphs():
                for length in self._lengths:
                    with tf.control_dependencies(compiled[-1:]):
                        row = tf.zeros([1, length, self._hidden_size])
                        compiled.append(graph(row, tf.ones([1, length], tf.bool)))
        with tf.control_dependencies(compiled):
            seconds = tf.timestamp() - start
        tf.print("XLA compiled", len(compiled) - 1, "graphs of an encoder in", seconds, "s")


def _width(mask: Tensor) -> Tensor:
    return tf.maximum(tf.reduce_max(tf.where(mask, tf.range(tf.shape(mask)[1]) + 1, 1)), 1)


# One row of vectors [units, tokens], with the methods of `Rows` that compiled steps call.
class _TurnedRow:
    def __init__(self, mask: Tensor, config: AlbertConfig, attention: Attention):
        self.config, self.attention, self.length = config, attention, tf.shape(mask)[1]
        self.bias, self.features = tf.where(mask, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis], dict[str, Tensor]()

    def token_positions(self) -> Tensor:
        return tf.range(self.length)[tf.newaxis]

    columns = token_positions

    def add_feature(self, name: str, values: Tensor) -> None:
        self.features[name] = values

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        shape = [3, 1, self.config.num_attention_heads, self.config.head_size, tf.shape(projected)[1]]
        query, key, value = tf.unstack(tf.transpose(tf.reshape(projected, shape), [0, 1, 2, 4, 3]))
        contexts = attend_from_first(self, self.bias, query, key, value, step)
        return tf.reshape(tf.transpose(contexts, [0, 1, 3, 2]), [self.config.hidden_size, -1])

    def attended(self, step: Step, inputs: Tensor) -> Tensor:
        return inputs

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return hidden[:, :1]


class _TurnedHalf(tf.Module):
    def __init__(self, half: Any):
        super().__init__()
        for name, layer in vars(half).items():
            if isinstance(layer, (ExportedDense, TransposedDense)):
                setattr(self, name, _TurnedDense(layer))
            elif isinstance(layer, (ExportedLayerNorm, ExportedRMSNorm)):
                setattr(self, name, _TurnedNorm(layer))
        self.low_rank, self.gate = _TurnedLowRank(half.low_rank), getattr(self, "gate", None)
        self.is_fused = not half.low_rank


class _TurnedLowRank:
    def __init__(self, low_rank: LowRank):
        self.low_rank = low_rank

    def get(self, name: str, inputs: Tensor, step: Step, residual: Tensor | None = None) -> Any:
        if name not in self.low_rank.factors:
            return residual
        a, b = self.low_rank.of_step(name, step)
        added = tf.matmul(b, tf.matmul(a, inputs, transpose_a=True), transpose_a=True)
        return added if residual is None else residual + added


class _TurnedDense(tf.Module):
    # A dense layer over [inputs, tokens], with a transposed kernel, which makes XLA 5 times as fast.
    def __init__(self, layer: ExportedDense | TransposedDense):
        super().__init__()
        self.hidden_act, self.bias = layer.hidden_act, layer.bias
        is_turned = isinstance(layer, TransposedDense)
        self.kernel = layer.kernel if is_turned else variable(tf.transpose(layer.kernel), tf.float32, "kernel")

    def __call__(self, inputs: Tensor, residual: Tensor | None = None) -> Tensor:
        product = tf.matmul(self.kernel.value(), inputs) + self.bias.value()[:, tf.newaxis]
        if self.hidden_act is not None:
            product = act(self.hidden_act, product)
        return product if residual is None else residual + product


class _TurnedNorm:
    def __init__(self, norm: ExportedLayerNorm | ExportedRMSNorm):
        self.epsilon, self.centres = norm.epsilon, isinstance(norm, ExportedLayerNorm)
        self.scale, self.offset = (norm.gamma, norm.beta) if isinstance(norm, ExportedLayerNorm) else (norm.scale, None)

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.centres:
            inputs -= tf.reduce_mean(inputs, axis=0, keepdims=True)
        size = tf.reduce_mean(tf.square(inputs), axis=0, keepdims=True) + self.epsilon
        normalised = inputs * (tf.math.rsqrt(size) * self.scale[:, tf.newaxis])
        return normalised if self.offset is None else normalised + self.offset[:, tf.newaxis]
