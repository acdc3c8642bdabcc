"""What an extension of the encoder is: a frozen dataclass in one file, whose fields are the keys that it reads.

The registry names modules and imports none. An extension is imported when a configuration asks for it, so a plain
encoder imports none.
"""

import dataclasses
import functools
import importlib
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


@dataclasses.dataclass(frozen=True)
class Extension:
    """One feature of the encoder. Each method has a default for an extension that takes no part in it.

    Attributes:
        name: as in the registry.
        order: of `around`: lower ones are nearer to the block.
        walk: the value of the encoder's `walk` that stands for it, "" if none does.
        is_published: whether a published model has it.
        lists_steps: whether a loop over depth has to be unrolled for it.
        draws: whether something is drawn for each batch of training.
        outputs: names of what its runner's `report` returns of every batch, for which no token may be left out.
        for_litert: whether its mathematics runs in LiteRT's own operations.
    """

    name: ClassVar[str] = ""
    order: ClassVar[int] = 0
    walk: ClassVar[str] = ""
    is_published: ClassVar[bool] = False
    lists_steps: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ()
    for_litert: ClassVar[bool] = False

    def spec(self, spec: Spec) -> Spec:
        """Returns what embeddings and blocks are made of."""
        return spec

    def holders(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[Holder]:
        """Returns what an owner holds: "encoder", "embeddings", or "attention" or "feed_forward" run at `steps`."""
        return []

    def check(self, config: Any) -> None:
        """Raises UserError where its values do not go with a configuration."""

    def metrics(self) -> tuple[str, ...]:
        """Returns the names of the metrics that its runner's `report` measures."""
        return ()

    def check_features(self, features: dict[str, Any]) -> None:
        """Raises UserError where a batch has features that do not go with it."""

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        """Raises UserError where hidden states or attentions are asked for that there are not with it."""

    def check_early_exit(self) -> None:
        """Raises UserError where rows of an export cannot leave between two steps."""

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

    def around(self, runner: Any, weights: Weights) -> Any:
        """Returns the runner of steps, or another one around it."""
        return runner


class Entry(NamedTuple):
    """Says where an extension is, and which key of a configuration asks for it.

    Attributes:
        module: its module.
        key: the key.
        values: the key's values that ask for it; (): every value that is not OFF.
        walk: see `Extension`; the encoder's `walk` asks for it as well, with the first of `values`.
        features: names of a batch's features that only this extension reads.
    """

    module: str
    key: str
    values: tuple[str, ...] = ()
    walk: str = ""
    features: tuple[str, ...] = ()


# In the order of their variables. A new extension comes last, its layers below "depth_layers" on disk.
REGISTRY = {
    "step_signal": Entry("albert_tf.extensions.step_signal", "step_signal"),
    "hyper_connections": Entry("albert_tf.extensions.hyper_connections", "hyper_connections"),
    "halting": Entry("albert_tf.extensions.halting", "halting"),
    "equilibrium": Entry(
        "albert_tf.extensions.equilibrium", "equilibrium_solver", ("fixed_point", "anderson"), "equilibrium"
    ),
    "depth_lora": Entry("albert_tf.extensions.depth_lora", "depth_lora_rank"),
    "random_depth": Entry("albert_tf.extensions.random_depth", "random_depth_min"),
    "rotary": Entry("albert_tf.extensions.rotary", "position_type", ("rotary",)),
    "relative": Entry(
        "albert_tf.extensions.relative",
        "position_type",
        ("relative",),
        features=("perm_mask", "target_mapping", "query_positions", "memory", "is_reversed"),
    ),
    "window": Entry("albert_tf.extensions.window", "attention_window"),
}
# Values of a key that ask for nothing.
OFF = (0, "", "none", None, False)
WALKS = tuple(entry.walk for entry in REGISTRY.values() if entry.walk)


@functools.lru_cache(maxsize=256)
def extensions_of(config: Any) -> tuple[Extension, ...]:
    """Returns the extensions that a configuration asks for, in the registry's order.

    Raises:
        UserError: one is not installed.
    """
    found = []
    for name, entry in REGISTRY.items():
        value = getattr(config, entry.key, None)
        if value in OFF or (entry.values and value not in entry.values):
            continue
        try:
            cls = extension_class(name)
        except ModuleNotFoundError as error:
            raise UserError(f"{entry.key} {value!r} needs the extension '{name}', which is not installed") from error
        found.append(cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)}))
    return tuple(found)


def extension_class(name: str) -> type[Extension]:
    """Imports an extension and returns its class: the one that its module defines."""
    module = importlib.import_module(REGISTRY[name].module)
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Extension)]
    return next(one for one in classes if one.__module__ == module.__name__)


def extension_of(config: Any, name: str) -> Any:
    """Returns the extension of that name; None where a configuration does not ask for it."""
    return next((one for one in extensions_of(config) if one.name == name), None)


@functools.lru_cache(maxsize=256)
def spec_of(config: Any) -> Spec:
    """Returns what a configuration's embeddings and blocks are made of."""
    spec = Spec()
    for one in extensions_of(config):
        spec = one.spec(spec)
    return spec


def settled(config: "AlbertConfig", walk: str) -> tuple["AlbertConfig", str]:
    """Returns a configuration and a walk that agree, where an extension has a walk of its own.

    Raises:
        UserError: the configuration asks for such an extension, and the walk is another on purpose.
    """
    for entry in REGISTRY.values():
        if entry.walk and entry.walk == walk and getattr(config, entry.key) in OFF:
            config = config.replace(**{entry.key: entry.values[0]})
    for one in extensions_of(config):
        if one.walk and walk not in ("unrolled", one.walk):
            key = REGISTRY[one.name].key
            raise UserError(
                f"walk '{walk}' runs the plan's steps, {key} '{getattr(config, key)}' does not; leave out the walk, or"
                f" set {key} to 'none'"
            )
        walk = one.walk or walk
    return config, walk
