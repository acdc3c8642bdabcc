"""The encoder: embeddings, blocks applied by a plan over depth, pooler."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.choices import WALKS
from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor, walks
from albert_tf.layers.base_model import BaseModel, enable_adapters, merge_adapters
from albert_tf.layers.block import PROJECTIONS, FeedForward, SelfAttention, TransformerBlock, attention_bias
from albert_tf.layers.dense import dense, norm
from albert_tf.layers.depth import Step, depth_draw, plan
from albert_tf.layers.dropout import site_seed
from albert_tf.layers.embeddings import Embeddings
from albert_tf.layers.equilibrium import RectangleRows
from albert_tf.layers.equilibrium_walk import EQUILIBRIUM, Equilibrium, repeated_segment, settled
from albert_tf.layers.features import by_name, check_features, rows_of, summary_tokens, token_positions
from albert_tf.layers.fit_data import check_data
from albert_tf.layers.halting import Halting
from albert_tf.layers.hyper_connections import HyperConnections
from albert_tf.layers.lookup import plain
from albert_tf.layers.pullback import Function
from albert_tf.layers.relative import Relations
from albert_tf.layers.rotary import Rotation
from albert_tf.layers.stack import make_blocks
from albert_tf.layers.step_signal import StepSignal
from tfrecords.base.errors import UserError


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(BaseModel):
    """Turns token ids into contextual vectors.

    Args:
        config: an AlbertConfig, or its fields as a dict.
        walk: how blocks are applied over depth. "unrolled" lists every step in the graph; "loop" makes one graph
            loop of each run of equal layers, so the graph does not grow with depth; "recompute" keeps only each
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
        if isinstance(config, dict):
            config = AlbertConfig.from_dict(config)
        if walk not in WALKS:
            raise UserError(f"walk '{walk}' is none of {', '.join(WALKS)}")
        self.config, self.walk = settled(config, walk)
        self.seed, config = seed, self.config
        self.steps = tuple(plan(config))
        self.depth_draw: Any = depth_draw(config)
        self._distinct = tuple(dict.fromkeys(step._replace(is_local=False) for step in self.steps))
        self.embeddings = Embeddings(config, dtype=self.dtype_policy, name="embeddings")
        self.blocks = make_blocks(config, self.steps, self._distinct, self.dtype_policy)
        self.step_signal = self.connections = None
        self.equilibrium: Any = None
        if config.step_signal != "none":
            self.step_signal = StepSignal(config, dtype=self.dtype_policy, name="depth_signal")
        if config.hyper_connections:
            self.connections = HyperConnections(config, dtype=self.dtype_policy, name="depth_connections")
        self.halting: Any = None
        if config.halting != "none":
            self.halting = Halting(config, dtype=self.dtype_policy, name="depth_halting")
        if self.walk == EQUILIBRIUM:
            self.equilibrium = Equilibrium(config, dtype=self.dtype_policy, name="depth_injection")
        self.final_norm: Any = None
        if config.norm_position == "pre":
            self.final_norm = norm(config, dtype=self.dtype_policy, name="final_norm")
        self.pooler: Any = None
        if pooler:
            self.pooler = dense(config, config.hidden_size, activation="tanh", dtype=self.dtype_policy, name="pooler")
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob or config.random_depth_min:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.build((None, None))

    def build(self, input_shape: Any = None) -> None:
        # Variables exist from the start: weights can be loaded, and counted, before any call.
        self.embeddings.build((None, None))
        for block in self.blocks:
            block.build((None, self.config.hidden_size))
        for layer in (self.step_signal, self.connections, self.halting, self.equilibrium):
            if layer is not None:
                layer.build()
        if self.final_norm is not None:
            self.final_norm.build((None, self.config.hidden_size))
        if self.pooler is not None:
            self.pooler.build((None, self.config.hidden_size))

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
                query_positions or target_mapping, memory and is_reversed: see layers/relative.py.
            training: whether dropout applies, and whether the depth is drawn where `random_depth_min` asks for it.
            output_hidden_states: True also where `walk` is "loop", which is then unrolled, and where the depth would be
                drawn, which then is not; False never. A walk to an equilibrium keeps none, and no attentions.
            output_attentions: whether to return the attention probabilities; a loop is then unrolled.

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
            UserError: features by unknown names, or hidden states or attentions of an equilibrium.
        """
        seed = self.seed_generator.next() if training and self.seed_generator is not None else None
        embedding_output, state, apply, length, relations = self._begin(features := by_name(features), seed)
        # Whoever asks for the state after every step has them all made.
        draws = self.depth_draw is not None and training and not (output_hidden_states or output_attentions)
        drawn = self.depth_draw(seed) if draws else None
        hidden_states, attentions, solved = list[Tensor](), list[Tensor](), dict[str, Tensor]()
        if output_attentions and self.config.attention_window:
            raise plain(UserError("with an attention_window no attentions are kept; leave out output_attentions"))
        if self.walk == EQUILIBRIUM:
            if output_hidden_states or output_attentions:
                raise UserError("a walk to an equilibrium keeps no hidden states and no attentions on its way")
            rows = rows_of(features, relations and relations.queries)
            state, solved = walks.solve(self.config, apply, state, self.equilibrium, rows)
        elif self.walk == "loop" and not (output_hidden_states or output_attentions or self.config.memory_length):
            state = walks.loop(self.config, apply, state, self.depth_draw, drawn)
        else:
            run = functools.partial(walks.list_steps, show=self._shown, recompute=self.walk == "recompute")
            state, hidden_states, attentions = run(self.config, apply, state, draw=self.depth_draw, drawn=drawn)
        if self.halting is not None:
            loss, solved["steps"] = self.halting.conclude(state[1], features.get("input_mask"), length)
            self.add_loss(loss)
        sequence_output = self._rows(self.finish(state), length)
        streams = {"sequence_output": sequence_output} if relations is None else relations.outputs(sequence_output)
        outputs = {"embedding_output": embedding_output} | streams | solved
        hidden_states = [self._rows(hidden, length) for hidden in hidden_states]
        if relations is not None:
            hidden_states = [relations.content(hidden) for hidden in hidden_states]
            if self.config.memory_length:
                outputs["memory"] = relations.remembered(hidden_states[:-1])
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(summary_tokens(outputs["sequence_output"], features, self.config))
        listed = self.walk not in ("loop", EQUILIBRIUM) and not self.is_exported
        if output_hidden_states or (output_hidden_states is None and listed):
            outputs["hidden_states"] = hidden_states
        if output_attentions:
            outputs["attentions"] = attentions
        return outputs

    def _begin(self, features: dict[str, Any], seed: Tensor) -> tuple[Tensor, Any, Callable, Tensor, Relations | None]:
        """The embeddings' output, the state before the first step, what runs a step, a row's length, its relations."""
        check_features(features, self.config)
        input_ids, positions, relations = features["input_ids"], token_positions(features, self.config), None
        if self.config.position_type == "relative":
            relations = Relations(self.config, features, self.compute_dtype, seed)
        queries = relations and relations.queries
        embedding_output, hidden = self.embeddings(
            input_ids, features.get("segment_ids"), positions, seed=seed, queries=queries
        )
        length = ops.shape(hidden)[1]
        shared = {"length": length, "bias": None, "places": relations}
        if relations is None:
            shared["bias"] = attention_bias(features.get("input_mask"), features.get("sequence_ids"), hidden.dtype)
        elif self.walk in ("unrolled", "loop"):
            # Once for all steps that share them. A step that is recomputed finds gradients of its own weights alone.
            relations.projected = {half: half.position_keys(relations.distances) for half in self.attentions}
        if self.config.position_type == "rotary":
            shared["places"] = Rotation(self.config, length, positions)
        apply = functools.partial(self.apply, shared=shared, seed=seed)
        state = self.start(ops.reshape(hidden, (-1, self.config.hidden_size)))
        if relations is not None:
            embedding_output = relations.content(embedding_output)
        return embedding_output, state, apply, length, relations

    def recurrence(self, features: Any) -> tuple[Function, Tensor, RectangleRows]:
        """Gives what a fixed point is sought of, for a batch, whatever the walk.

        Args:
            features: those of `call`.

        Returns:
            The function of a state [tokens, hidden_size] that runs the plan's repeated blocks once, with their input
            injected where the walk is to an equilibrium; the state that they begin with, [tokens, hidden_size]; and
            which of the tokens make a row.

        Raises:
            UserError: the plan has no single run of blocks that repeats.
        """
        place, features = repeated_segment(self.config), by_name(features)
        _, state, apply, _, relations = self._begin(features, seed=None)
        *before, blocks = walks.cycles(self.config, apply)[: place + 1]
        for cycle in before:
            state = cycle(0, state)
        function: Function = functools.partial(blocks, 0)
        if self.equilibrium is not None:
            function = self.equilibrium.recurrence(function, state)
        return function, state, rows_of(features, relations and relations.queries)

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        check_data(self.config, x, y)

    @property
    def means(self) -> list[keras.metrics.Metric]:
        """Gives the metrics of the walk, to which `measure` adds."""
        return [mean for walked in (self.equilibrium, self.halting) if walked is not None for mean in walked.means]

    def measure(self) -> None:
        """Adds the last call's rows to what metrics there are of the walk, in the same graph or trace.

        Models here do so. One of your own shows these metrics if its `compute_loss` calls this first.
        """
        for walked in (self.equilibrium, self.halting):
            if walked is not None:
                walked.measure()

    def block(self, step: Step) -> TransformerBlock:
        """Gives the block that runs at a step of the plan."""
        return self.blocks[self._distinct.index(step._replace(is_local=False))]

    @property
    def attentions(self) -> list[SelfAttention]:
        """Gives the distinct attention halves, in the order of `Step.attention`."""
        halves = {step.attention: self.block(step).attention for step in self._distinct}
        return [halves[index] for index in sorted(halves)]

    @property
    def feed_forwards(self) -> list[FeedForward]:
        """Gives the distinct feed-forward halves, in the order of `Step.feed_forward`."""
        halves = {step.feed_forward: self.block(step).feed_forward for step in self._distinct}
        return [halves[index] for index in sorted(halves)]

    @property
    def depth_layers(self) -> dict[str, keras.layers.Layer]:
        """Gives the layers that no published model has, by the names that `checkpoints` knows them by: "depth_...".

        Those of their weights that have a row for each step have one for each of their `steps`, or for all.
        """
        own = (self.step_signal, self.connections, self.halting, self.equilibrium)
        layers: dict[str, Any] = {layer.name: layer for layer in own if layer is not None}
        halves: dict[str, Sequence[Any]] = {"attention": self.attentions, "feed_forward": self.feed_forwards}
        for half, group in halves.items():
            for number, part in enumerate(group):
                layers |= {f"depth_lora/{half}_{number}/{name}": layer for name, layer in part.adapters.items()}
        return layers

    @property
    def depth_variables(self) -> dict[str, keras.Variable]:
        """Gives the weights of `depth_layers`."""
        layers = self.depth_layers
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
        layers = [attention.projections[name] for attention in self.attentions for name in target_layer_names]
        enable_adapters(self, layers, rank)

    def merge_lora(self) -> None:
        """Adds the adapters to their kernels and takes them away; every weight is trained again. Compile anew."""
        merge_adapters(self)

    def start(self, hidden: Tensor) -> Any:
        """Gives the state that travels from step to step, for the first: a tensor, or tensors in tuples.

        The first axis of each is the tokens. Plain ALBERT's is `hidden` itself, [tokens, hidden_size].
        """
        state = hidden if self.connections is None else self.connections.start(hidden)
        return state if self.halting is None else (state, self.halting.start(hidden))

    def apply(
        self, which: Step, step: Tensor, state: Any, shared: dict[str, Any], seed: Tensor = None
    ) -> tuple[Any, Tensor]:
        """Runs one step.

        Args:
            which: its weights.
            step: its number in the plan, an int, or a scalar tensor within a loop.
            state: what `start` gave, or the step before.
            shared: arguments of `TransformerBlock.call` that are the same at every step.
            seed: uint32 [2] that the dropout masks of all steps follow from; None outside training.

        Returns:
            The new state, of the same structure and shapes, and the attention probabilities.
        """
        state, sums = (state, None) if self.halting is None else state
        before, gates = (state, None) if self.connections is None else self.connections.read(step, state)
        if self.step_signal is not None:
            before = self.step_signal(before, step=step)
        after, probabilities = self.block(which)(
            before, **shared, seed=site_seed(seed, 3 * step), step=step, is_local=which.is_local
        )
        if self.connections is not None:
            after = self.connections.write(step, state, after, gates)
        if self.halting is None:
            return after, probabilities
        return (after, self.halting.update(step, before, self.hidden((after, sums)), sums)), probabilities

    def hidden(self, state: Any) -> Tensor:
        """Gives what a state carries on, without the sums of halting: [tokens, hidden_size]."""
        carried = state if self.halting is None else state[0]
        return carried if self.connections is None else self.connections.mean(carried)

    def finish(self, state: Any) -> Tensor:
        """Gives what the last state comes to: the sequence output, [tokens, hidden_size]."""
        if self.halting is None:
            return self._shown(state)
        return self._normalized(ops.cast(state[1].result, self.compute_dtype))

    def _shown(self, state: Any) -> Tensor:
        """What `hidden_states` lists of a state: what it would come to were it the last, and no token halted."""
        return self._normalized(self.hidden(state))

    def _normalized(self, hidden: Tensor) -> Tensor:
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _rows(self, flat: Tensor, length: Tensor) -> Tensor:
        return ops.reshape(flat, (-1, length, self.config.hidden_size))

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
