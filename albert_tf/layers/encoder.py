"""The encoder: embeddings, blocks applied over depth, pooler."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.choices import WALKS
from albert_tf.config import AlbertConfig
from albert_tf.extension import Weights, settled
from albert_tf.layers import Tensor
from albert_tf.layers.base_model import BaseModel, enable_adapters, merge_adapters
from albert_tf.layers.block import ATTEND, Attention, attend_to_all
from albert_tf.layers.dense import dense, norm
from albert_tf.layers.depth import Step, plan
from albert_tf.layers.depth_loop import DepthLoop, Runner, make_runner
from albert_tf.layers.embeddings import Embeddings
from albert_tf.layers.features import by_name, check_features
from albert_tf.layers.fit_data import check_data
from albert_tf.layers.halves import Half, HolderLayer, Owner, TransformerBlock, Untracked, collect, put
from albert_tf.layers.padded import LayerKernels, PaddedRows
from albert_tf.layers.precision import warn_of_bfloat16
from tfrecords.base.errors import UserError

# The dense layers that LoRA may adapt.
PROJECTIONS = ("query", "key", "value", "output")


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(BaseModel, Owner):
    """Turns token ids into contextual vectors.

    Args:
        config: an AlbertConfig, or its fields as a dict.
        walk: how blocks are applied over depth. "unrolled" lists every step in the graph; "loop" makes one graph
            loop of each run of equal layers, so the graph does not grow with depth; "recompute" stores only each
            block's input for the backward pass; "equilibrium" runs what the plan repeats to its fixed point, which is
            another model: a configuration that sets `equilibrium_solver` asks for it, and is what says how.
        pooler: whether there is a pooler; models that look at every token have no use for one.
        seed: seed of the dropout masks; drawn at random where None.
        **kwargs: arguments of `keras.Model`, such as `dtype`.

    Raises:
        UserError: an unknown walk, or one that does not go with the configuration.

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
        if self.compute_dtype == "bfloat16":
            warn_of_bfloat16()
        if walk not in WALKS:
            raise UserError(f"walk '{walk}' is none of {', '.join(WALKS)}")
        config = AlbertConfig.from_dict(config) if isinstance(config, dict) else config
        config, self.walk = settled(config, walk)
        self.config, self.seed = config, seed
        self.steps = tuple(plan(config))
        own = {"dtype": self.dtype_policy}
        self.embeddings = Embeddings(config, name="embeddings", **own)
        self._halves = Untracked(self._make_halves())
        self.blocks = [
            TransformerBlock(
                *(self._halves.value[kind, getattr(step, kind)] for kind in ("attention", "feed_forward")),
                name=f"block_{i}",
                **own,
            )
            for i, step in enumerate(dict.fromkeys(step._replace(phase=0) for step in self.steps))
        ]
        self.hold(config, "encoder")
        self.final_norm: Any = None
        if config.norm_position == "pre":
            self.final_norm = norm(config, name="final_norm", **own)
        self.pooler: Any = None
        if pooler:
            self.pooler = dense(config, config.hidden_size, activation="tanh", name="pooler", **own)
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob or self._draws():
            self.seed_generator = keras.random.SeedGenerator(seed)
        # By hand, as Keras would name them by class and by what comes before them.
        for i, half in enumerate(self.halves_of("attention")):
            put(self, f"attentions/{config.spec.attention_name}{f'_{i}' if i else ''}", half)
        self.put_on_disk()
        self._unmeasured: dict[str, Tensor] = {}
        self.build((None, None))

    def _make_halves(self) -> dict[tuple[str, int], Half]:
        halves = {}
        for kind in ("attention", "feed_forward"):
            numbers = [getattr(step, kind) for step in self.steps]
            for i in dict.fromkeys(numbers):
                steps = tuple(step for step, other in enumerate(numbers) if other == i)
                halves[kind, i] = Half(self.config, kind, steps, dtype=self.dtype_policy, name=kind)
        return halves

    def _draws(self) -> bool:
        return any(one.draws for one in self.config.extensions)

    def build(self, input_shape: Any = None) -> None:
        # Variables exist from the start: weights can be loaded, and counted, before any call.
        width = self.config.hidden_size
        self.embeddings.build((None, None))
        for block in self.blocks:
            block.build((None, width))
        self.build_held(self.config)
        for layer in (self.final_norm, self.pooler):
            if layer is not None:
                layer.build((None, width))
        self._weights = Untracked(collect(self.config, self.steps, self.owners()))

    def call(
        self,
        features: Any,
        training: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Encodes a batch.

        Args:
            features: input_ids alone, or a dict of int32 tensors; transformers' attention_mask and token_type_ids are
                taken for input_mask and segment_ids, what other models here read is passed over, and a name that
                none of them knows is an error:
                input_ids [batch, sequence];
                input_mask [batch, sequence], 1 for tokens and 0 for padding (default: all 1);
                segment_ids [batch, sequence] (default: all 0);
                sequence_ids [batch, sequence], which of several sequences packed into a row a token belongs to:
                tokens of different numbers do not attend to each other, and positions restart (default: one);
                position_ids [batch, sequence], from 0 whatever position_offset is (default: 0, 1, ... within each
                sequence; with an offset, over the tokens that are no padding);
                sequence_starts [batch, n], where the packed sequences start, for the pooler (default: position 0).
                Where positions are relative, there are no packed rows and no position_ids, but perm_mask,
                query_positions or target_mapping, memory and is_reversed: see extensions/relative.
            training: whether dropout applies, and whether the depth is drawn where `random_depth_min` asks for it.
            output_hidden_states: True also where `walk` is "loop", which is then unrolled, and where the depth would be
                drawn, which then is not; False never. A walk to an equilibrium has none, and no attentions.
            output_attentions: whether to return the attention probabilities; steps are then listed.

        Returns:
            dict of
                embedding_output [batch, sequence, embedding_size]: after layer norm, before the projection;
                sequence_output [batch, sequence, hidden_size];
                query_output [batch, targets, hidden_size], of the query stream where features name targets;
                memory [steps, batch, up to memory_length, hidden_size], where the configuration has a memory_length:
                feature of the batch whose rows follow these, without gradient; a loop is then unrolled;
                pooled_output [batch, hidden_size], or [batch, n, hidden_size] with sequence_starts; where there is a
                pooler;
                hidden_states: list of [batch, sequence, hidden_size], the blocks' input, then what each step would give
                were it the last; a step that a drawn depth leaves out repeats the one before;
                attentions: list of [batch, heads, sequence, sequence], one per block, on request;
                residual float32 [batch] and steps int32 [batch], of a walk to an equilibrium: how much the blocks still
                move a row, relative to its length, and how often they were run;
                steps int32 [batch, sequence], of tokens that halt: how many each took.

        Raises:
            UserError: features by unknown names, or hidden states or attentions that there are not.
        """
        seed = self.seed_generator.next() if training and self.seed_generator is not None else None
        shown, attentions = list[Tensor](), list[Tensor]()
        asks = output_hidden_states or output_attentions
        for one in self.config.extensions if asks else ():
            one.check_outputs(bool(output_hidden_states), output_attentions)
        embedded, runner, state = self.begin(
            features, seed, attentions if output_attentions else None, is_drawn=training and not asks
        )
        rows = runner.rows
        is_listed = self.walk in ("unrolled", "recompute") and not self.is_exported
        shows = output_hidden_states or (output_hidden_states is None and is_listed)

        def show(state: Any) -> None:
            shown.append(self._finish(runner, runner.carried(state)))

        state = DepthLoop(self._kind(bool(asks), output_attentions), observe=show if shows else None)(runner, state)
        if shows:
            show(state)
        reported, losses, self._unmeasured = runner.report(state)
        for loss in losses:
            self.add_loss(loss)
        sequence = self._finish(runner, ops.cast(runner.result(state), self.compute_dtype))
        outputs = {"embedding_output": rows.content(embedded)} | rows.outputs(sequence) | reported
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(rows.summaries(outputs["sequence_output"]))
        if shows:
            outputs["hidden_states"] = [rows.content(one) for one in shown]
        if output_attentions:
            outputs["attentions"] = [rows.probabilities(one) for one in attentions]
        return outputs

    def _kind(self, asks: bool, output_attentions: bool) -> str:
        """Of the loop over depth: listed where something of every step is wanted."""
        is_listed = asks or any(one.lists_steps for one in self.config.extensions)
        if self.walk == "recompute":
            return "unrolled" if output_attentions else "recompute"
        return "loop" if self.walk == "loop" and not is_listed else "unrolled"

    def begin(
        self,
        features: Any,
        seed: Tensor = None,
        probabilities: list[Tensor] | None = None,
        is_drawn: bool = False,
    ) -> tuple[Tensor, Runner, Any]:
        """Prepares a batch for the steps.

        Args:
            features: those of `call`.
            seed: uint32 [2] that dropout follows from; None outside training.
            probabilities: a list that gets the attention probabilities of the steps; None: nobody wants them.
            is_drawn: whether what is drawn for a batch of training is.

        Returns:
            The embeddings' output [batch, sequence, embedding_size], what runs a step, and the state before the first.

        Raises:
            UserError: features by unknown names.
        """
        features, weights = by_name(features), self._weights.value
        check_features(features, self.config)
        kernels = self.kernels(seed, probabilities)
        # A kernel of its own keeps no probabilities.
        attend = ATTEND.get() if probabilities is None else attend_to_all
        early, late = kernels.scale
        attention = Attention(kernels.weigh, early, late, attend=attend)
        for one in self.config.extensions:
            attention = one.attention(attention, weights[one.name])
        rows = PaddedRows(self.config, features, attention, self.compute_dtype, seed, seed if is_drawn else None)
        for one in self.config.extensions:
            rows = one.rows(rows, features, weights[one.name])
            if self.walk in ("unrolled", "loop"):
                one.hoist(rows, weights[one.name])
        embedded, hidden = self.embeddings(
            features["input_ids"], features.get("segment_ids"), rows.positions, seed=seed, rows=rows
        )
        runner = make_runner(self.config, kernels, rows, weights)
        return embedded, runner, runner.begin(ops.reshape(hidden, (-1, self.config.hidden_size)))

    def kernels(self, seed: Tensor = None, probabilities: list[Tensor] | None = None) -> LayerKernels:
        """Returns what multiplies, for one call; arguments as of `begin`."""
        return LayerKernels(
            self.config, self._halves.value, self._weights.value, self.compute_dtype, seed, probabilities
        )

    def owners(self) -> dict[tuple[str, int], Owner]:
        """Returns what holds weights, by kind and number: the encoder itself, its embeddings, all halves."""
        return {("encoder", 0): self, ("embeddings", 0): self.embeddings} | self._halves.value

    def _finish(self, runner: Runner, hidden: Tensor) -> Tensor:
        """Ends [tokens, hidden_size] as the last step does: [batch, length, hidden_size]."""
        return runner.rows.rectangle(hidden if self.final_norm is None else self.final_norm(hidden))

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        check_data(self.config, x, y)

    @property
    def means(self) -> list[keras.metrics.Metric]:
        """Returns the metrics of extensions, to which `measure` adds."""
        return [mean for layer in self.held_layers() for mean in layer.means]

    def measure(self) -> None:
        """Adds the last call's rows to the metrics of extensions, in the same graph or trace.

        Models here do so. One of your own shows these metrics if its `compute_loss` calls this first.
        """
        values, self._unmeasured = self._unmeasured, {}
        for mean in self.means:
            if mean.name in values:
                mean.update_state(values[mean.name])

    def halves_of(self, kind: str) -> list[Half]:
        """Returns the distinct halves, "attention" or "feed_forward", in the order of their numbers in `Step`."""
        return [half for (own, _), half in sorted(self._halves.value.items()) if own == kind]

    def block(self, step: Step) -> TransformerBlock:
        """Returns the block that runs at a step of the plan."""
        distinct = list(dict.fromkeys(one._replace(phase=0) for one in self.steps))
        return self.blocks[distinct.index(step._replace(phase=0))]

    @property
    def extension_weights(self) -> dict[str, Weights]:
        """Returns the weights of every extension, by its name."""
        return self._weights.value

    def extension_layers(self) -> dict[str, HolderLayer]:
        """Returns the layers that no published model has, by the names that `checkpoints` knows them by: "depth_...".

        Those of their weights that have a row for each step have one for each of the layer's `steps`, or for all.
        """
        owners: list[tuple[str, Owner]] = [("", self)]
        owners += [(f"{kind}_{i}", half) for (kind, i), half in sorted(self._halves.value.items())]
        layers = {}
        for owner, holding in owners:
            for layer in holding.held_layers():
                if not layer.extension.published:
                    name = layer.name
                    if owner:
                        name = f"{layer.extension.name}/{owner}/{name.removeprefix(f'{layer.extension.name}_')}"
                    layers[name] = layer
        return layers

    @property
    def depth_variables(self) -> dict[str, keras.Variable]:
        """Returns the weights of `extension_layers`."""
        layers = self.extension_layers()
        return {f"{name}/{variable.name}": variable for name, layer in layers.items() for variable in layer.weights}

    def enable_lora(self, rank: int, target_layer_names: Sequence[str] = ("query", "value")) -> None:
        """Freezes the encoder and gives attention projections low-rank adapters, as keras-hub's backbones do.

        A head on the encoder is trained next to them. Call it before `compile`. Files hold the adapters apart, so that
        training goes on from them, and the kernels with the adapters added, for models without adapters.

        Args:
            rank: width of each adapter: rank * 2 * hidden_size weights a projection.
            target_layer_names: some of "query", "key", "value", "output".

        Raises:
            UserError: for an impossible rank or name, or where there are adapters already.
        """
        unknown = [name for name in target_layer_names if name not in PROJECTIONS]
        if unknown:
            raise UserError(f"enable_lora: '{unknown[0]}' is none of {', '.join(PROJECTIONS)}")
        layers = [half.product(name) for half in self.halves_of("attention") for name in target_layer_names]
        enable_adapters(self, layers, rank)

    def merge_lora(self) -> None:
        """Adds the adapters to their kernels and takes them away; every weight is trained again. Compile anew."""
        merge_adapters(self)

    # Keras leaves seed generators out of its files; a resumed run must draw the masks that it would have drawn.
    def save_own_variables(self, store: Any) -> None:
        if self.seed_generator is not None:
            store["seed_generator_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store: Any) -> None:
        if self.seed_generator is not None and "seed_generator_state" in set(store.keys()):
            self.seed_generator.state.assign(store["seed_generator_state"])

    def get_config(self) -> dict[str, Any]:
        base = super().get_config()
        own = {"config": self.config.to_dict(), "walk": self.walk, "seed": self.seed}
        return {**base, **own, "pooler": self.pooler is not None}
