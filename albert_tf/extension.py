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
        per_step: whether each step that uses it has its own. Axis 0 counts these steps; of a half that runs once there
            may be no such axis.
        autocast: whether Keras casts it to the dtype of the computation.
        constraint: what an optimizer applies after an update.
    """

    shape: tuple[int, ...]
    initializer: Any = "zeros"
    per_step: bool = False
    autocast: bool = True
    constraint: Any = None


class Holder(NamedTuple):
    """Describes a layer that holds weights of an extension. Files and optimizers know all three names: do not change.

    Attributes:
        attribute: of its owner. Optimizers number their variables in the order of these layers.
        layer: the layer's name, part of its variables' paths.
        disk: its path in a `.keras` file, from the owner on. "": there is no layer, the owner has the weights itself.
        weights: by their names.
    """

    attribute: str
    layer: str
    disk: str
    weights: dict[str, Weight]


class Weights:
    """The tensors of one extension: Keras variables in training, arrays in an export.

    Attributes:
        held: by owner, then by name. An owner is ("encoder", 0), ("embeddings", 0), ("attention", i) or
            ("feed_forward", i); a weight of a layer within a half is called "layer/name".
        steps: by half, the numbers of the steps that run it.
    """

    def __init__(self, held: dict[tuple[str, int], dict[str, Any]], steps: dict[tuple[str, int], tuple[int, ...]]):
        self.held, self.steps = held, steps

    def __getitem__(self, name: str) -> Any:
        """Returns a weight of the encoder."""
        return self.held["encoder", 0][name]

    def map(self, function: Any) -> "Weights":
        """Returns the same weights with a function applied to each."""
        held = {owner: {name: function(one) for name, one in own.items()} for owner, own in self.held.items()}
        return Weights(held, self.steps)


class Spec(NamedTuple):
    """What embeddings and blocks are made of, as data that an extension may change.

    Attributes:
        has_positions: whether embeddings add a vector for each position.
        has_types: whether they add a vector for each segment.
        has_norm: whether they are normalized.
        attention_bias: whether the dense layers of attention have biases.
        drops_inside: whether there is dropout within the feed-forward network.
        attention_name: of the attention layers, in `.keras` files.
        last_token: whether the last token of a row stands for it; otherwise the first.
    """

    has_positions: bool = True
    has_types: bool = True
    has_norm: bool = True
    attention_bias: bool = True
    drops_inside: bool = False
    attention_name: str = "self_attention"
    last_token: bool = False


class Work(NamedTuple):
    """What a row costs, as data that an extension may change: see `albert_tf.analysis.cost`.

    Attributes:
        length: tokens, those included that an extension adds to a row.
        steps: blocks that it runs through, at most.
        stored_steps: of them, those whose results the backward pass stores.
        pairs: pairs of tokens whose scores are computed, in all steps of the plan.
        stored_pairs: those that the backward pass stores.
        products: further multiplications for each token, in all steps of the plan.
        streams: vectors of each token between steps, if there are more than one; else 0.
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
    """One feature of the encoder. Each method has a default for an extension that takes no part in it.

    Attributes:
        name: as in the registry.
        choices: by key, the values that it may have.
        limits: by key, what its value must be, as text and as a function.
        needed: keys that mean nothing without it, so that a configuration which sets one is refused.
        begins_plain: whether a model begins as the one without it, so that weights of that one can start it.
        order: of `around`: lower ones are nearer to the block.
        walk: the value of the encoder's `walk` that stands for it, "" if none does.
        published: keys that a published model has.
        no_exits: why rows cannot leave early with it, "" where they can.
        lists_steps: whether a loop over depth has to be unrolled for it.
        changes_input: whether blocks read something else than the state of the step before.
        fuses: whether attention by one kernel, as cuDNN has it, computes the same.
        packs: whether several examples may share a row.
        draws: whether something is drawn for each batch of training.
        outputs: names of what its runner's `report` returns of every batch, for which no token may be left out.
        for_litert: whether its mathematics runs in LiteRT's own operations.
        numbers_heads: whether heads of one number have something in common in all blocks, so that none may change its.
    """

    name: ClassVar[str] = ""
    choices: ClassVar[dict[str, tuple]] = {}
    limits: ClassVar[dict[str, tuple[str, Callable[[Any], bool]]]] = {}
    needed: ClassVar[tuple[str, ...]] = ()
    begins_plain: ClassVar[bool] = False
    order: ClassVar[int] = 0
    walk: ClassVar[str] = ""
    published: ClassVar[tuple[str, ...]] = ()
    no_exits: ClassVar[str] = ""
    lists_steps: ClassVar[bool] = False
    changes_input: ClassVar[bool] = False
    fuses: ClassVar[bool] = True
    packs: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ()
    for_litert: ClassVar[bool] = False
    numbers_heads: ClassVar[bool] = False

    def spec(self, spec: Spec) -> Spec:
        """Returns what embeddings and blocks are made of."""
        return spec

    def holders(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[Holder]:
        """Returns what an owner holds: "encoder", "embeddings", or "attention" or "feed_forward" run at `steps`."""
        return []

    def check(self, config: Any) -> None:
        """Raises UserError where its values are impossible, or do not go with a configuration."""

    def conflicts(self) -> dict[str, str]:
        """Returns keys that must not be set with it, each with the reason."""
        return {}

    def period(self) -> int:
        """Returns after how many steps what it does at a step, as known when a graph is built, repeats."""
        return 1

    def metrics(self) -> tuple[str, ...]:
        """Returns the names of the metrics that its runner's `report` measures."""
        return ()

    def check_features(self, features: dict[str, Any]) -> None:
        """Raises UserError where a batch has features that do not go with it."""

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        """Raises UserError where hidden states or attentions are asked for that there are not with it."""

    def at_depth(self, depth: int) -> dict[str, Any]:
        """Returns keys to change where a configuration is given another number of layers."""
        return {}

    def evaluated_loss(self, results: Mapping[str, Any]) -> Any:
        """Returns what the metrics of an evaluation add to its loss."""
        return 0.0

    def figures(self, encoder: Any, features: dict[str, Any]) -> dict[str, float]:
        """Returns what a run's history shows of some rows of training, by the names of columns."""
        return {}

    def warning(self, figures: Mapping[str, float], step: int) -> str:
        """Returns what the figures of a run at a step warn of, "" if nothing."""
        return ""

    def branch_scale(self, config: Any, steps: tuple[int, ...]) -> float:
        """Returns what the branch of a half that `steps` run is multiplied by before it is added to the residual."""
        return 1.0

    def low_rank(self, weights: Weights, half: tuple[str, int], product: str) -> tuple[Any, Any] | None:
        """Returns what is added to a dense layer's kernel: a [visits, inputs, rank] and b [visits, rank, units]."""
        return None

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        """Returns the rows of a batch, changed or as they are."""
        return rows

    def attention(self, attention: Any, weights: Weights) -> Any:
        """Returns how heads attend, with some functions replaced."""
        return attention

    def hoist(self, rows: Any, weights: Weights) -> None:
        """Computes for the rows what depends on weights but on no step. Not called when steps are recomputed."""

    def work(self, config: Any, targets: int, work: Work) -> Work:
        """Returns what a row costs with it; `targets` tokens follow a row whose words are to be predicted."""
        return work

    def head_weights(self, config: Any) -> int | None:
        """Returns how many weights the heads of its pre-training have; None: those of ALBERT's."""
        return None

    def around(self, runner: Any, weights: Weights) -> Any:
        """Returns the runner of steps, or another one around it."""
        return runner


class Entry(NamedTuple):
    """Says where an extension is, and what asks for it.

    Attributes:
        module: its module.
        keys: the keys of a configuration that it reads. The first one asks for it.
        values: the values of that key that ask for it; (): every value but `off`.
        off: the value of that key that asks for nothing.
        walk: see `Extension`; the encoder's `walk` asks for it as well, with the first of `values`.
        features: names of a batch's features that only this extension reads.
    """

    module: str
    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    off: str | int = 0
    walk: str = ""
    features: tuple[str, ...] = ()

    @property
    def asked_by(self) -> str:
        """Returns what asks for it, for messages."""
        return f"{self.keys[0]} '{self.values[0]}'" if self.values else self.keys[0]

    def is_off(self, value: Any) -> bool:
        """Returns whether a value of the first key asks for nothing. One of another type, such as False, is no such."""
        return type(value) is type(self.off) and value == self.off


_FOLDER = "albert_tf.extensions"
# In the order of their variables. A new extension comes last, its layers below "depth_layers" on disk.
REGISTRY = {
    "step_signal": Entry(f"{_FOLDER}.step_signal", ("step_signal", "gate_init"), off="none"),
    "hyper_connections": Entry(f"{_FOLDER}.hyper_connections", ("hyper_connections", "gate_init")),
    "halting": Entry(f"{_FOLDER}.halting", ("halting", "halting_threshold", "ponder_cost", "gate_init"), off="none"),
    "equilibrium": Entry(
        f"{_FOLDER}.equilibrium",
        (
            *("equilibrium_solver", "equilibrium_tolerance", "equilibrium_max_steps", "equilibrium_gradient"),
            *("equilibrium_phantom_steps", "equilibrium_damping", "gate_init"),
        ),
        ("fixed_point", "anderson"),
        off="none",
        walk="equilibrium",
    ),
    "depth_lora": Entry(f"{_FOLDER}.depth_lora", ("depth_lora_rank", "depth_lora_target")),
    "random_depth": Entry(f"{_FOLDER}.random_depth", ("random_depth_min",)),
    "rotary": Entry(f"{_FOLDER}.rotary", ("position_type", "rotary_theta"), ("rotary",), off="absolute"),
    "relative": Entry(
        f"{_FOLDER}.relative",
        ("position_type", "attention_type", "clamp_length", "memory_length", "reuse_length", "untie_biases"),
        ("relative",),
        off="absolute",
        features=("perm_mask", "target_mapping", "query_positions", "memory", "is_reversed"),
    ),
    "window": Entry(f"{_FOLDER}.window", ("attention_window", "global_attention_every")),
    "distance_buckets": Entry(f"{_FOLDER}.distance_buckets", ("relative_attention_num_buckets",)),
    "residual_scaling": Entry(f"{_FOLDER}.residual_scaling", ("residual_scaling",), off="none"),
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


def asked_for(values: Mapping[str, Any]) -> tuple[Extension, ...]:
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
        module = importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(_FOLDER):
            raise  # The extension is there, and what it needs is not.
        raise UserError(f"{entry.asked_by} needs the extension '{name}', which is not installed") from error
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Extension)]
    return next(one for one in classes if one.__module__ == module.__name__)


def owner_of(key: str) -> tuple[Entry, type[Extension]]:
    """Returns the first extension that reads a key."""
    name, entry = next((name, entry) for name, entry in REGISTRY.items() if key in entry.keys)
    return entry, extension_class(name)


def default_of(key: str) -> Any:
    """Returns the default value of a key of extensions."""
    return owner_of(key)[1].__dataclass_fields__[key].default


def stated(config: "AlbertConfig", extension: Extension) -> str:
    """Returns the key that asks for an extension of a configuration, and its value, for messages."""
    key = REGISTRY[extension.name].keys[0]
    return f"{key} {getattr(config, key)!r}"


def check_exits(config: "AlbertConfig") -> None:
    """Raises UserError where rows of an encoder cannot leave early."""
    for one in config.extensions:
        if one.no_exits:
            raise UserError(f"early exit and {stated(config, one)} exclude each other: {one.no_exits}; leave one out")


def settled(config: "AlbertConfig", walk: str) -> tuple["AlbertConfig", str]:
    """Returns a configuration and a walk that agree, where an extension has a walk of its own.

    Raises:
        UserError: the configuration asks for such an extension, and the walk is another on purpose.
    """
    for name, entry in REGISTRY.items():
        if entry.walk and entry.walk == walk and config.extension(name) is None:
            config = config.replace(**{entry.keys[0]: entry.values[0]})
    for one in config.extensions:
        if one.walk and walk not in ("unrolled", one.walk):
            key = REGISTRY[one.name].keys[0]
            raise UserError(
                f"walk '{walk}' runs the plan's steps, {key} '{getattr(config, key)}' does not; leave out the walk, or"
                f" set {key} to 'none'"
            )
        walk = one.walk or walk
    return config, walk
