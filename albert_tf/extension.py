"""What an extension of the encoder is: a frozen dataclass in one file, whose fields are the keys that it reads.

The registry names modules and imports none. An extension is imported when a configuration asks for it, so a plain
encoder imports none.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tfrecords.base.errors import UserError

if TYPE_CHECKING:
    from albert_tf.config import AlbertConfig


class Weight(NamedTuple):
    """Describes a weight.

    Attributes:
        shape: its shape.
        initializer: a Keras initializer, or "normal" for the configuration's own.
        per_step: whether axis 0 counts the steps that use it. A half that runs once may do without such an axis.
        autocast: whether Keras casts it to the dtype of the computation.
        constraint: what an optimizer applies after an update.
    """

    shape: tuple[int, ...]
    initializer: Any = "zeros"
    per_step: bool = False
    autocast: bool = True
    constraint: Any = None


class WeightLayer(NamedTuple):
    """Describes a layer that holds weights of an extension. Its names are in files and optimizers: never change them.

    Attributes:
        attribute: the name it has in its owner. Optimizers number variables in the order of these layers.
        layer: the layer's name, part of its variables' paths.
        disk: its path in a `.keras` file, below its owner; "" if the owner itself has the weights.
        weights: the weights by name.
    """

    attribute: str
    layer: str
    disk: str
    weights: dict[str, Weight]


class Weights:
    """The tensors of one extension: Keras variables in training, arrays in an export.

    Attributes:
        by_owner: weights by name, by owner: ("encoder", 0), ("embeddings", 0), ("attention", i) or ("feed_forward", i).
            A weight of a layer in a half is called "layer/name".
        steps: by half, the numbers of the steps that run it.
    """

    def __init__(self, by_owner: dict[tuple[str, int], dict[str, Any]], steps: dict[tuple[str, int], tuple[int, ...]]):
        self.by_owner, self.steps = by_owner, steps

    def __getitem__(self, name: str) -> Any:
        """Returns a weight of the encoder."""
        return self.by_owner["encoder", 0][name]

    def map(self, function: Any) -> "Weights":
        """Returns the same weights with a function applied to each."""
        by_owner = {owner: {name: function(one) for name, one in own.items()} for owner, own in self.by_owner.items()}
        return Weights(by_owner, self.steps)


class Spec(NamedTuple):
    """What embeddings and blocks consist of.

    Attributes:
        has_positions: whether embeddings add a vector for each position.
        has_types: whether embeddings add a vector for each segment.
        has_norm: whether embeddings are normalized.
        attention_bias: whether the dense layers of attention have biases.
        drops_inside: whether there is dropout inside the feed-forward network.
        attention_name: the name of attention layers in `.keras` files.
        last_token: whether the last token represents a row; otherwise the first.
    """

    has_positions: bool = True
    has_types: bool = True
    has_norm: bool = True
    attention_bias: bool = True
    drops_inside: bool = False
    attention_name: str = "self_attention"
    last_token: bool = False


class RowCost(NamedTuple):
    """What a row costs; see `albert_tf.analysis.cost`.

    Attributes:
        length: its tokens, with those that an extension adds.
        steps: the most blocks that it runs through.
        stored_steps: of these, the blocks whose results the backward pass stores.
        pairs: pairs of tokens whose scores are computed, in all steps of the plan.
        stored_pairs: pairs whose scores the backward pass stores.
        products: further multiplications for each token, in all steps of the plan.
        streams: vectors of each token between steps if there is more than one, else 0.
    """

    length: int
    steps: int
    stored_steps: int
    pairs: float
    stored_pairs: float
    products: int = 0
    streams: int = 0


@dataclasses.dataclass(frozen=True)
class Extension:
    """One feature of the encoder. Its fields are the keys that it reads. By default, each method changes nothing."""

    name: ClassVar[str] = ""  # as in the registry
    choices: ClassVar[dict[str, tuple]] = {}  # the values that a key may have
    limits: ClassVar[dict[str, tuple[str, Callable[[Any], bool]]]] = {}  # what a key's value must be: text, function
    needed: ClassVar[tuple[str, ...]] = ()  # keys that mean nothing without it, and are refused then
    published: ClassVar[tuple[str, ...]] = ()  # keys that a published model has
    begins_plain: ClassVar[bool] = False  # a new model equals the one without it, whose weights can start it
    order: ClassVar[int] = 0  # of `around`: lower ones are nearer to the block
    walk: ClassVar[str] = ""  # the value of the encoder's `walk` that asks for it
    outputs: ClassVar[tuple[str, ...]] = ()  # outputs of every batch from `report`, for which all tokens are computed
    no_exits: ClassVar[str] = ""  # why rows cannot leave early with it
    lists_steps: ClassVar[bool] = False  # a loop over depth has to be unrolled
    changes_input: ClassVar[bool] = False  # blocks read something else than the state of the step before
    fuses: ClassVar[bool] = True  # attention by one kernel, as cuDNN has it, computes the same
    packs: ClassVar[bool] = True  # several examples may share a row
    draws: ClassVar[bool] = False  # something is drawn for each batch of training
    for_litert: ClassVar[bool] = False  # it runs in LiteRT's own operations
    numbers_heads: ClassVar[bool] = False  # heads of one number belong together in all blocks: none may change its own

    def check(self, config: Any) -> None:
        """Raises UserError where its values are impossible, or do not go with a configuration."""

    def conflicts(self) -> dict[str, str]:
        """Returns keys that must not be set with it, each with the reason."""
        return {}

    def spec(self, spec: Spec) -> Spec:
        """Returns what embeddings and blocks consist of."""
        return spec

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        """Returns its layers in an owner: "encoder", "embeddings", or "attention" or "feed_forward" run at `steps`."""
        return []

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        """Returns the rows of a batch, changed or as they are."""
        return rows

    def attention(self, attention: Any, weights: Weights) -> Any:
        """Returns how heads attend, with some functions replaced."""
        return attention

    def hoist(self, rows: Any, weights: Weights) -> None:
        """Computes for the rows what depends on weights but on no step. Not called when steps are recomputed."""

    def low_rank(self, weights: Weights, half: tuple[str, int], product: str) -> tuple[Any, Any] | None:
        """Returns what is added to a dense layer's kernel: a [visits, inputs, rank] and b [visits, rank, units]."""
        return None

    def branch_scale(self, config: Any, steps: tuple[int, ...]) -> float:
        """Returns the factor of what a half that `steps` run adds to the residual."""
        return 1.0

    def around(self, runner: Any, weights: Weights) -> Any:
        """Returns the runner of steps, or another one around it."""
        return runner

    def period(self) -> int:
        """Returns after how many steps what it does at a step, as known when a graph is built, repeats."""
        return 1

    def check_features(self, features: dict[str, Any]) -> None:
        """Raises UserError where a batch has features that do not go with it."""

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        """Raises UserError where it has no hidden states or attentions, and they are requested."""

    def at_depth(self, depth: int) -> dict[str, Any]:
        """Returns keys to change where a configuration gets another number of layers."""
        return {}

    def metrics(self) -> tuple[str, ...]:
        """Returns the names of the metrics that its runner's `report` measures."""
        return ()

    def evaluated_loss(self, results: Mapping[str, Any]) -> Any:
        """Returns what the metrics of an evaluation add to its loss."""
        return 0.0

    def figures(self, encoder: Any, features: dict[str, Any]) -> dict[str, float]:
        """Returns columns of a run's history that are computed from some rows of training."""
        return {}

    def warning(self, figures: Mapping[str, float], step: int) -> str:
        """Returns what the figures of a run at a step warn of, "" if nothing."""
        return ""

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        """Returns what a row costs with it; `targets` tokens follow a row whose words are to be predicted."""
        return cost

    def head_weights(self, config: Any) -> int | None:
        """Returns how many weights the heads of its pre-training have; None: those of ALBERT's."""
        return None


class Entry(NamedTuple):
    """Says where an extension is, and what asks for it.

    Attributes:
        keys: the keys of a configuration that it reads. The first one asks for it.
        values: the values of that key that ask for it; (): every value but `off`.
        off: the value of that key that asks for nothing.
        walk: see `Extension`; the encoder's `walk` asks for it as well, with the first of `values`.
        features: names of a batch's features that only this extension reads.
        module: its module; "": albert_tf.extensions has one of its name.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    off: str | int = 0
    walk: str = ""
    features: tuple[str, ...] = ()
    module: str = ""

    @property
    def requested_by(self) -> str:
        """Returns what asks for it, for messages."""
        return f"{self.keys[0]} '{self.values[0]}'" if self.values else self.keys[0]

    def is_off(self, value: Any) -> bool:
        """Returns whether a value of the first key asks for nothing. One of another type, such as False, is no such."""
        return type(value) is type(self.off) and value == self.off


_FOLDER = "albert_tf.extensions"
# In the order of their variables. A new extension comes last, its layers below "depth_layers" on disk.
REGISTRY = {
    "step_signal": Entry(("step_signal", "gate_init"), off="none"),
    "hyper_connections": Entry(("hyper_connections", "gate_init")),
    "halting": Entry(("halting", "halting_threshold", "ponder_cost", "gate_init"), off="none"),
    "equilibrium": Entry(
        (
            *("equilibrium_solver", "equilibrium_tolerance", "equilibrium_max_steps", "equilibrium_gradient"),
            *("equilibrium_phantom_steps", "equilibrium_damping", "gate_init"),
        ),
        ("fixed_point", "anderson"),
        off="none",
        walk="equilibrium",
    ),
    "depth_lora": Entry(("depth_lora_rank", "depth_lora_target")),
    "random_depth": Entry(("random_depth_min",)),
    "rotary": Entry(("position_type", "rotary_theta"), ("rotary",), off="absolute"),
    "relative": Entry(
        ("position_type", "attention_type", "clamp_length", "memory_length", "reuse_length", "untie_biases"),
        ("relative",),
        off="absolute",
        features=("perm_mask", "target_mapping", "query_positions", "memory", "is_reversed"),
    ),
    "window": Entry(("attention_window", "global_attention_every")),
    "distance_buckets": Entry(("relative_attention_num_buckets",)),
    "residual_scaling": Entry(("residual_scaling",), off="none"),
}
# All keys that extensions read, each once.
KEYS = tuple(dict.fromkeys(key for entry in REGISTRY.values() for key in entry.keys))
POSITION_TYPES = (
    "absolute",
    *(value for entry in REGISTRY.values() if entry.keys[0] == "position_type" for value in entry.values),
)
# Of what learned gates begin with: 0: they are closed, and the model is exactly the one without; 1: the published form.
GATE = {"gate_init": ("from 0 to 1", lambda value: value <= 1)}
WALKS = tuple(entry.walk for entry in REGISTRY.values() if entry.walk)


def extensions_for(values: Mapping[str, Any]) -> tuple[Extension, ...]:
    """Makes the extensions that a configuration's keys ask for, in the registry's order.

    Raises:
        UserError: one is not installed.
    """
    found = []
    for name, entry in REGISTRY.items():
        value = values.get(entry.keys[0], entry.off)
        if value in entry.values if entry.values else not entry.is_off(value):
            cls = extension_class(name)
            found.append(cls(**{key: values[key] for key in entry.keys if key in values}))
    return tuple(found)


@functools.cache
def extension_class(name: str) -> type[Extension]:
    """Imports an extension and returns its class: the one that its module defines.

    Raises:
        UserError: it is not installed.
    """
    entry = REGISTRY[name]
    try:
        module = importlib.import_module(entry.module or f"{_FOLDER}.{name}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(_FOLDER):
            raise  # The extension is there, and what it needs is not.
        raise UserError(f"{entry.requested_by} needs the extension '{name}', which is not installed") from error
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Extension)]
    return next(one for one in classes if one.__module__ == module.__name__)


def owner_of(key: str) -> tuple[Entry, type[Extension]]:
    """Returns the first extension that reads a key."""
    name, entry = next((name, entry) for name, entry in REGISTRY.items() if key in entry.keys)
    return entry, extension_class(name)


def default_of(key: str) -> Any:
    """Returns the default value of a key of extensions."""
    return owner_of(key)[1].__dataclass_fields__[key].default


def setting_of(config: "AlbertConfig", extension: Extension) -> str:
    """Returns the key that asks for an extension of a configuration, and its value, for messages."""
    key = REGISTRY[extension.name].keys[0]
    return f"{key} {getattr(config, key)!r}"


def check_exits(config: "AlbertConfig") -> None:
    """Raises UserError where rows of an encoder cannot leave early."""
    for one in config.extensions:
        if one.no_exits:
            raise UserError(
                f"early exit and {setting_of(config, one)} exclude each other: {one.no_exits}; leave one out"
            )


def resolve_walk(config: "AlbertConfig", walk: str) -> tuple["AlbertConfig", str]:
    """Returns a configuration and a walk that agree, where an extension has a walk of its own.

    Raises:
        UserError: the configuration asks for such an extension, and the walk is another on purpose.
    """
    for name, entry in REGISTRY.items():
        if entry.walk and entry.walk == walk and config.extension(name) is None:
            config = config.replace(**{entry.keys[0]: entry.values[0]})
    for one in config.extensions:
        if one.walk and walk not in ("unrolled", one.walk):
            raise UserError(
                f"walk '{walk}' runs the plan's steps, {setting_of(config, one)} does not; leave out the walk, or set"
                f" {REGISTRY[one.name].keys[0]} to 'none'"
            )
        walk = one.walk or walk
    return config, walk
