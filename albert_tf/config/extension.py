"""The base class of encoder extensions."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from albert_tf.config.registry import KEYS, REGISTRY, Spec, Weights, owner_of
from tfrecords.base.errors import UserError

# Of a tensor's dimensions, which ids count in 32 bits.
_LARGEST = 2**31 - 1


def check_value(
    field: dataclasses.Field,
    value: Any,
    choices: Mapping[str, tuple] = {},
    limits: Mapping[str, tuple[str, Callable[[Any], bool]]] = {},
) -> None:
    """Raises UserError if a value has another type than its field (str, bool, number) or is negative.

    An int must fit 32 bits, and be at least 1 if its default is above 0. A name ending in "_prob" requires a value
    below 1. `choices` maps field names to the allowed values, `limits` to (description, condition).
    """
    name = field.name
    if field.type in (str, bool):
        if not isinstance(value, cast(type, field.type)):
            raise UserError(f"{name} must be a {cast(type, field.type).__name__}, not {value!r}")
        if name in choices and value not in choices[name]:
            raise UserError(f"{name} '{value}' is none of {', '.join(choices[name])}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name} must be a number, not {value!r}")
    # Counts that may be 0 have the default 0.
    least = min(cast(float, field.default), 1)
    if field.type is int and not (isinstance(value, int) and least <= value <= _LARGEST):
        raise UserError(f"{name} must be a whole number of at least {least}, in 32 bits, not {value}")
    if name.endswith("_prob") and not 0 <= value < 1:
        raise UserError(f"{name} must be a probability below 1, not {value}")
    if field.type is float and not (value >= 0 and math.isfinite(value)):
        raise UserError(f"{name} must be finite and not negative, not {value}")
    if name in limits and not limits[name][1](value):
        raise UserError(f"{name} must be {limits[name][0]}, not {value}")


if TYPE_CHECKING:
    from albert_tf.config import AlbertConfig

# Initial value of learned gates. 0: the model equals one without the extension; 1: the published form.
GATE = {"gate_init": ("from 0 to 1", lambda value: value <= 1)}


class Weight(NamedTuple):
    """A weight of an extension.

    Attributes:
        initializer: a Keras initializer, or "normal" (truncated, standard deviation `initializer_range`).
        per_step: whether axis 0 has a row for each step that uses the weight; for a single step, the axis is optional.
        autocast: whether Keras casts the weight to the compute dtype.
    """

    shape: tuple[int, ...]
    initializer: Any = "zeros"
    per_step: bool = False
    autocast: bool = True
    constraint: Any = None


class WeightLayer(NamedTuple):
    """A layer that holds an extension's weights. Never change its names, which files and optimizers use.

    Attributes:
        attribute: name of the owner's attribute that holds the layer.
        layer: the layer's name in variables' paths.
        disk: the layer's path in a `.keras` file, relative to the owner; "" if the owner itself holds the weights.
    """

    attribute: str
    layer: str
    disk: str
    weights: dict[str, Weight]


class RowCost(NamedTuple):
    """The cost of a row of tokens.

    Attributes:
        length: tokens, including those that an extension adds.
        steps: maximal number of blocks that a row runs through.
        stored_steps: blocks whose results are stored for the backward pass.
        pairs: token pairs that have an attention score, over all steps.
        stored_pairs: those whose scores are stored for the backward pass.
        products: additional multiplications per token.
    """

    length: int
    steps: int
    stored_steps: int
    pairs: float
    stored_pairs: float
    products: int = 0


@dataclasses.dataclass(frozen=True)
class Extension:
    """The base class of optional features of the encoder.

    Its fields are configuration keys. By default, methods change nothing. "Half" means the attention or feed-forward
    part of a block.
    """

    name: ClassVar[str] = ""  # as in the registry
    choices: ClassVar[dict[str, tuple]] = {}  # the values that a key may have
    limits: ClassVar[dict[str, tuple[str, Callable[[Any], bool]]]] = {}  # conditions on a key's value: text, function
    needed: ClassVar[tuple[str, ...]] = ()  # keys that require it
    published: ClassVar[tuple[str, ...]] = ()  # keys that a published model has
    free: ClassVar[tuple[str, ...]] = ()  # keys that may differ from the configuration of a run's initial weights
    begins_plain: ClassVar[bool] = False  # a new model equals the one without it, whose weights can start it
    order: ClassVar[int] = 0  # of `around`: lower ones are nearer to the block
    walk: ClassVar[str] = ""  # the value of the encoder's `walk` that requests it
    outputs: ClassVar[tuple[str, ...]] = ()  # outputs of every batch from `report`, for which all tokens are computed
    no_exits: ClassVar[str] = ""  # why rows cannot leave early with it
    lists_steps: ClassVar[bool] = False  # a loop over depth has to be unrolled
    changes_input: ClassVar[bool] = False  # blocks do not read the previous step's state
    packs: ClassVar[bool] = True  # several examples may share a row
    draws: ClassVar[bool] = False  # each training batch has random draws
    for_litert: ClassVar[bool] = True  # it runs in LiteRT's own operations
    numbers_heads: ClassVar[bool] = (
        False  # heads with the same number correspond across blocks: no block may permute them
    )

    def check(self, config: Any) -> None:
        """Raises UserError if values are impossible or conflict."""

    def conflicts(self) -> dict[str, str]:
        """Returns the configuration keys that exclude this extension, with the reasons."""
        return {}

    def spec(self, spec: Spec) -> Spec:
        """Returns `spec` with the extension's changes."""
        return spec

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        """Returns the layers for `owner`: "encoder", "embeddings", or a half ("attention", "feed_forward").

        `steps` are the numbers of the steps that run a half.
        """
        return []

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        """Returns the layout of a batch: `rows` or a replacement."""
        return rows

    def attention(self, attention: Any, weights: Weights) -> Any:
        """Returns `attention`, perhaps with some functions replaced."""
        return attention

    def hoist(self, rows: Any, weights: Weights) -> None:
        """Precomputes tensors that all steps share; called only if the encoder's `walk` is "unrolled" or "loop"."""

    def low_rank(self, weights: Weights, half: tuple[str, int], product: str) -> tuple[Any, Any] | None:
        """Returns None, or factors [steps, inputs, rank] and [steps, rank, units] of a matrix to add to a kernel."""
        return None

    def around(self, runner: Any, weights: Weights) -> Any:
        """Returns `runner`, which runs the depth steps, or one that wraps it."""
        return runner

    def period(self) -> int:
        """Returns the number of steps after which the extension's behaviour repeats."""
        return 1

    def check_features(self, features: dict[str, Any]) -> None:
        """Raises UserError if the extension does not allow a batch's features."""

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        """Raises UserError if the extension cannot return these outputs."""

    def at_depth(self, depth: int) -> dict[str, Any]:
        """Returns configuration keys to change for running `depth` layers."""
        return {}

    def unshared(self) -> dict[str, Any]:
        """Returns configuration keys to change if each step gets its own weights."""
        return {}

    def metrics(self) -> tuple[str, ...]:
        """Returns the names of the extension's metrics."""
        return ()

    def evaluated_loss(self, results: Mapping[str, Any]) -> Any:
        """Returns the extension's loss term in evaluation, computed from the metrics `results`."""
        return 0.0

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        """Returns `cost` with this extension included; `targets` counts a permutation model's queries."""
        return cost

    def head_weights(self, config: Any) -> int | None:
        """Returns the number of weights in pre-training heads; None for ALBERT's heads."""
        return None


def check_extensions(config: "AlbertConfig", defaults: Mapping[str, Any]) -> None:
    """Raises UserError for impossible or conflicting values of extensions."""
    for key, value in config.unused:
        entry, cls = owner_of(key)
        check_value(cls.__dataclass_fields__[key], value, cls.choices, cls.limits)
        if key in cls.needed:
            raise UserError(f"{key} {value!r} needs {entry.requested_by}; set it, or leave this")
    for one in config.extensions:
        for field in dataclasses.fields(one):
            check_value(field, getattr(one, field.name), one.choices, one.limits)
    given = config.to_dict()
    for one in config.extensions:
        for other, reason in one.conflicts().items():
            if other in given and given[other] != defaults.get(other):
                both = f"{other} {given[other]!r} and {setting_of(config, one)}"
                raise UserError(f"{both} exclude each other: {reason}; leave one out")
        one.check(config)


def begins_plain(key: str) -> bool:
    """Returns whether a newly initialized model computes the same with this key as without."""
    return key == "depth_plan" or (key in KEYS and owner_of(key)[1].begins_plain)


def setting_of(config: "AlbertConfig", extension: "Extension") -> str:
    """Returns the key that requests an extension and its value, such as "halting 'act'"."""
    key = REGISTRY[extension.name].keys[0]
    return f"{key} {getattr(config, key)!r}"


def resolve_walk(config: "AlbertConfig", walk: str) -> tuple["AlbertConfig", str]:
    """Returns an encoder's configuration and `walk`, made consistent: if either requests an extension, both do."""
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
