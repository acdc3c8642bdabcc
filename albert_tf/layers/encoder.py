"""The ALBERT encoder: embeddings, blocks over depth, pooler."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.extensions import ExtendedEncoder
from albert_tf.base.layers import SeedInFiles, activation
from albert_tf.base.model import BaseModel, Untracked, check_data, enable_adapters, merge_adapters, put
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import resolve_walk
from albert_tf.config.registry import PLAIN_WALKS, WALKS, Weights
from albert_tf.layers.block import Attention
from albert_tf.layers.depth import DepthLoop, Runner, make_runner, plan
from albert_tf.layers.padded import LayerKernels, PaddedRows, by_name, check_features, check_values
from albert_tf.layers.weights import Embeddings, Half, TransformerBlock, collect, dense, norm
from tfrecords.base.errors import UserError

# The dense layers that LoRA may adapt.
PROJECTIONS = ("query", "key", "value", "output")


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(SeedInFiles, BaseModel, ExtendedEncoder):
    """Turns token ids into contextual vectors.

    Args:
        config: an AlbertConfig, or its fields as a dict.
        walk: how blocks are applied over depth. "unrolled" lists every step in the graph; "loop" makes a graph loop of
            equal layers; "recompute" stores only each block's input for the backward pass; "equilibrium" adds the
            extension of that name, which changes the outputs.
        pooler: whether there is a pooler; models that use only sequence_output need none.
        seed: seed of the dropout masks; None for a random one.

    Raises:
        UserError: the walk is unknown, or the configuration does not allow it.

    >>> import numpy as np
    >>> encoder = AlbertEncoder(AlbertConfig.named("albert_tiny"))
    >>> outputs = encoder({"input_ids": np.array([[101, 2769, 102, 0]]), "input_mask": np.array([[1, 1, 1, 0]])})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((1, 4, 312), (1, 312))
    """

    def __init__(
        self,
        config: AlbertConfig | dict,
        walk: str = "unrolled",
        pooler: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if walk not in WALKS:
            raise UserError(f"walk '{walk}' is none of {', '.join(WALKS)}")
        config = AlbertConfig.from_dict(config) if isinstance(config, dict) else config
        if config.extensions or walk not in PLAIN_WALKS:
            config, walk = resolve_walk(config, walk)
        self.config, self.walk, self.seed, self.steps = config, walk, seed, tuple(plan(config))
        own: dict[str, Any] = {"dtype": self.dtype_policy}
        self.embeddings = Embeddings(config, name="embeddings", **own)
        self._halves = Untracked(self._make_halves())
        self.blocks = [
            TransformerBlock(
                *(self.halves[kind, getattr(step, kind)] for kind in ("attention", "feed_forward")),
                name=f"block_{i}",
                **own,
            )
            for i, step in enumerate(dict.fromkeys(step._replace(phase=0) for step in self.steps))
        ]
        self.add_extension_layers(config, "encoder")
        self.final_norm: Any = norm(config, name="final_norm", **own) if config.norm_position == "pre" else None
        self.pooler: Any = None
        self.pooler_norm: Any = None
        if pooler:
            own |= {"activation": activation(config.pooler_act), "use_bias": not config.pooler_norm}
            self.pooler = dense(config, config.hidden_size, name="pooler", **own)
        if pooler and config.pooler_norm:
            self.pooler_norm = norm(config, name="pooler_norm", dtype=self.dtype_policy)
        draws = any(one.draws for one in config.extensions)
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob or draws:
            self.seed_generator = keras.random.SeedGenerator(seed)
        # Explicitly: Keras's names depend on classes and on earlier layers.
        for i, half in enumerate(self.halves_of("attention")):
            put(self, f"attentions/{config.spec.attention_name}{f'_{i}' if i else ''}", half)
        self.name_on_disk()
        self.build((None, None))

    def _make_halves(self) -> dict[tuple[str, int], Half]:
        runs = dict[tuple[str, int], list[int]]()
        for kind in ("attention", "feed_forward"):
            for number, step in enumerate(self.steps):
                runs.setdefault((kind, getattr(step, kind)), []).append(number)
        own = {"dtype": self.dtype_policy}
        return {half: Half(self.config, half[0], tuple(steps), name=half[0], **own) for half, steps in runs.items()}

    def build(self, input_shape: Any = None) -> None:
        # Variables exist from the start: weights can be loaded, and counted, before any call.
        width = self.config.hidden_size
        self.embeddings.build((None, None))
        for block in self.blocks:
            block.build((None, width))
        self.build_extension_layers(self.config)
        for layer in (self.final_norm, self.pooler, self.pooler_norm):
            if layer is not None:
                layer.build((None, width))
        self._weights = Untracked(collect(self.config, self.owners()))

    def call(
        self,
        features: Any,
        training: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Encodes a batch.

        Args:
            features: input_ids [batch, sequence] alone, or a dict of int32 tensors. transformers' names attention_mask
                and token_type_ids are accepted; features for heads are ignored.
                input_mask, 1 for tokens and 0 for padding (default: all 1);
                segment_ids (default: all 0);
                sequence_ids, the number of each token's sequence in a packed row: tokens attend within their sequence
                only, and positions restart;
                position_ids, counted from 0, without position_offset (default: 0, 1, ... within each sequence; with
                an offset, padding is not counted);
                sequence_starts [batch, n], the columns where packed sequences start, for the pooler (default: 0).
            training: enables dropout and the random draws of extensions.
            output_hidden_states: None returns them if `walk` is "unrolled" or "recompute". True unrolls the loop and
                runs all steps, even with random depth.
            output_attentions: adds the attention probabilities; True also unrolls the loop and runs all steps.

        Returns:
            dict of
                embedding_output [batch, sequence, embedding_size], after layer norm and before the projection;
                sequence_output [batch, sequence, hidden_size];
                pooled_output, if there is a pooler: [batch, hidden_size], or [batch, n, hidden_size] with
                sequence_starts;
                hidden_states: list of [batch, sequence, hidden_size], the first block's input, then each step's output
                as if it were the last; a skipped step repeats the previous one;
                attentions: list of [batch, heads, sequence, sequence], one per step;
                and the outputs of extensions.

        Raises:
            UserError: a feature name is unknown, or the encoder cannot return hidden states or attentions.
        """
        seed = self.seed_generator.next() if training and self.seed_generator is not None else None
        hidden_states, attentions = list[Tensor](), list[Tensor]() if output_attentions else None
        is_inspected = bool(output_hidden_states or output_attentions)
        for one in self.config.extensions if is_inspected else ():
            one.check_outputs(bool(output_hidden_states), output_attentions)
        embedded, runner, state = self.begin(features, seed, attentions, is_drawn=training and not is_inspected)
        rows = runner.rows
        is_listed = self.walk in ("unrolled", "recompute")
        has_states = output_hidden_states or (output_hidden_states is None and is_listed)

        def add(state: Any) -> None:
            hidden_states.append(self._finish(runner, runner.carried(state)))

        kind = self._loop_kind(is_inspected, output_attentions)
        state = DepthLoop(kind, observe=add if has_states else None)(runner, state)
        if has_states:
            add(state)
        reported, losses, self.unmeasured = runner.report(state)
        for loss in losses:
            self.add_loss(loss)
        sequence = self._finish(runner, ops.cast(runner.result(state), self.compute_dtype))
        outputs = {"embedding_output": rows.content(embedded)} | rows.outputs(sequence) | reported
        if self.pooler is not None:
            pooling = (rows.summaries, self.pooled)
            for function in pooling[::-1] if self.config.pooling == "late" else pooling:
                outputs["pooled_output"] = function(outputs.get("pooled_output", outputs["sequence_output"]))
        if has_states:
            outputs["hidden_states"] = [rows.content(one) for one in hidden_states]
        if attentions is not None:
            outputs["attentions"] = [rows.probabilities(one) for one in attentions]
        return outputs

    def _loop_kind(self, is_inspected: bool, output_attentions: bool) -> str:
        is_listed = is_inspected or any(one.lists_steps for one in self.config.extensions)
        if self.walk == "recompute":
            return "unrolled" if output_attentions else "recompute"
        return "loop" if self.walk == "loop" and not is_listed else "unrolled"

    def begin(
        self, features: Any, seed: Tensor = None, probabilities: list[Tensor] | None = None, is_drawn: bool = False
    ) -> tuple[Tensor, Runner, Any]:
        """Returns a batch's embeddings [batch, sequence, embedding_size], its Runner, and the runner's first state.

        `probabilities` collects attention probabilities; `is_drawn` enables random depth.
        """
        features, weights = by_name(features), self._weights.value
        check_features(features, self.config)
        kernels = LayerKernels(self, seed, probabilities)
        query_scale, score_scale = kernels.scale
        attention = Attention(kernels.softmax, query_scale, score_scale)
        for one in self.config.extensions:
            attention = one.attention(attention, weights[one.name])
        rows = PaddedRows(self.config, features, attention, self.compute_dtype, seed, seed if is_drawn else None)
        for one in self.config.extensions:
            rows = one.rows(rows, features, weights[one.name])
            if self.walk in ("unrolled", "loop"):
                one.hoist(rows, weights[one.name])
        ids, segments = features["input_ids"], features.get("segment_ids")
        embedded, hidden = self.embeddings(ids, segments, rows.positions, seed=seed, rows=rows)
        runner = make_runner(self.config, kernels, rows, weights)
        return embedded, runner, runner.begin(ops.reshape(hidden, (-1, self.config.hidden_size)))

    def pooled(self, vectors: Tensor) -> Tensor:
        """Applies the pooler to vectors [..., hidden_size]."""
        pooled = self.pooler(vectors)
        return pooled if self.pooler_norm is None else self.pooler_norm(pooled)

    def of_tokens(self, vectors: Tensor) -> Tensor:
        """Returns what a head for tokens or spans reads of sequence_output."""
        return vectors if self.pooler_norm is None else self.pooled(vectors)

    def owners(self) -> dict[tuple[str, int], Any]:
        return {("encoder", 0): self, ("embeddings", 0): self.embeddings} | self.halves

    def _finish(self, runner: Runner, hidden: Tensor) -> Tensor:
        return runner.rows.rectangle(hidden if self.final_norm is None else self.final_norm(hidden))

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        check_data(x, y, lambda features: check_values(features, self.config))

    @property
    def halves(self) -> dict[tuple[str, int], Half]:  # type: ignore[override]
        # By (kind, number); shared halves occur once.
        return self._halves.value

    def halves_of(self, kind: str) -> list[Half]:
        return [half for (own, _), half in sorted(self.halves.items()) if own == kind]

    @property
    def extension_weights(self) -> dict[str, Weights]:
        return self._weights.value

    def enable_lora(self, rank: int, target_layer_names: Sequence[str] = ("query", "value")) -> None:
        """Freezes the encoder and adds low-rank adapters to attention projections, as keras-hub's backbones do.

        Heads on the encoder still train. Call it before `compile`. Saved files hold the adapters and the merged
        kernels.

        Args:
            rank: rank of each adapter, which has rank * 2 * hidden_size weights.
            target_layer_names: some of "query", "key", "value", "output".

        Raises:
            UserError: the rank or a name is invalid, or there are adapters already.
        """
        unknown = [name for name in target_layer_names if name not in PROJECTIONS]
        if unknown:
            raise UserError(f"enable_lora: '{unknown[0]}' is none of {', '.join(PROJECTIONS)}")
        layers = [half.product(name) for half in self.halves_of("attention") for name in target_layer_names]
        enable_adapters(self, layers, rank)

    def merge_lora(self) -> None:
        """Adds each adapter to its kernel, removes the adapters and unfreezes all weights; compile again afterwards."""
        merge_adapters(self)

    def get_config(self) -> dict[str, Any]:
        own = {"config": self.config.to_dict(), "walk": self.walk, "seed": self.seed}
        return {**super().get_config(), **own, "pooler": self.pooler is not None}
