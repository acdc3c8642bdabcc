"""The registry of encoder extensions, which are imported only if requested."""

import functools
import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tfrecords.base.errors import UserError

if TYPE_CHECKING:
    from albert_tf.config.extension import Extension


class Spec(NamedTuple):
    """The optional components of embeddings and blocks."""

    has_positions: bool = True  # embeddings add a vector for each position
    has_types: bool = True  # embeddings add a vector for each segment
    has_norm: bool = True  # embeddings are normalized
    attention_bias: bool = True  # the dense layers of attention have biases
    drops_inside: bool = False  # there is dropout inside the feed-forward network
    attention_name: str = "self_attention"  # of attention layers in `.keras` files
    last_token: bool = False  # the last token represents a row; otherwise the first


class Weights:
    """The tensors of one extension: Keras variables in training, arrays in an export.

    Attributes:
        by_owner: weights by owner and name. Owners are ("encoder", 0), ("embeddings", 0), ("attention", i) and
            ("feed_forward", i). Weights in a layer of the last two are named "layer/name".
        steps: the numbers of the steps that run each of these two owners.
    """

    def __init__(self, by_owner: dict[tuple[str, int], dict[str, Any]], steps: dict[tuple[str, int], tuple[int, ...]]):
        self.by_owner, self.steps = by_owner, steps

    def __getitem__(self, name: str) -> Any:
        return self.by_owner["encoder", 0][name]

    def map(self, function: Any) -> "Weights":
        by_owner = {owner: {name: function(one) for name, one in own.items()} for owner, own in self.by_owner.items()}
        return Weights(by_owner, self.steps)


class Entry(NamedTuple):
    """An extension's module and configuration keys."""

    keys: tuple[str, ...]  # of a configuration, that it reads; the first one requests it
    values: tuple[str, ...] = ()  # of the first key, that request it; (): every value but `off`
    off: str | int = 0  # the value of the first key that disables it
    walk: str = ""  # the encoder's `walk` that also requests it, with the first of `values`
    features: tuple[str, ...] = ()  # of a batch, that only this extension reads
    module: str = ""  # "": the module of its name in albert_tf.extensions

    @property
    def requested_by(self) -> str:
        return f"{self.keys[0]} '{self.values[0]}'" if self.values else self.keys[0]

    def is_off(self, value: Any) -> bool:
        return type(value) is type(self.off) and value == self.off


_FOLDER = "albert_tf.extensions"
# In the order of their variables. A new extension comes last, its layers below "depth_layers" on disk.
REGISTRY = {
    "step_signal": Entry(("step_signal", "gate_init"), off="none"),
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
    "rotary": Entry(
        ("position_type", "rotary_theta", "rotary_local_theta", "rotary_factor"), ("rotary",), off="absolute"
    ),
    "relative": Entry(
        ("position_type", "attention_type", "clamp_length", "memory_length", "reuse_length", "untie_biases"),
        ("relative",),
        off="absolute",
        features=("perm_mask", "target_mapping", "query_positions", "memory", "is_reversed"),
    ),
    "window": Entry(("attention_window", "global_attention_every", "window_first_token")),
    "distance_buckets": Entry(("relative_attention_num_buckets",)),
}
# All keys that extensions read, each once.
KEYS = tuple(dict.fromkeys(key for entry in REGISTRY.values() for key in entry.keys))
# Equivalent modes of the depth loop, and those of extensions.
PLAIN_WALKS = ("unrolled", "loop", "recompute")
WALKS = (*PLAIN_WALKS, *(entry.walk for entry in REGISTRY.values() if entry.walk))


def extensions_for(values: Mapping[str, Any]) -> tuple["Extension", ...]:
    """Makes the extensions that a configuration's keys request."""
    found = []
    for name, entry in REGISTRY.items():
        value = values.get(entry.keys[0], entry.off)
        if value in entry.values if entry.values else not entry.is_off(value):
            cls = extension_class(name)
            found.append(cls(**{key: values[key] for key in entry.keys if key in values}))
    return tuple(found)


@functools.cache
def extension_class(name: str) -> type["Extension"]:
    """Imports an extension's class; raises UserError if it is not installed."""
    entry = REGISTRY[name]
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        # Extensions import Keras, which imports TensorFlow; commands read configurations before they do so themselves.
        import tfrecords.base.machine.quiet_tensorflow  # noqa: F401
    try:
        module = importlib.import_module(entry.module or f"{_FOLDER}.{name}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(_FOLDER):
            raise  # The extension exists, but one of its imports does not.
        raise UserError(f"{entry.requested_by} needs the extension '{name}', which is not installed") from error
    return next(one for one in vars(module).values() if isinstance(one, type) and getattr(one, "name", "") == name)


def owner_of(key: str) -> tuple[Entry, type["Extension"]]:
    """Returns entry and class of the first extension that reads a key."""
    name, entry = next((name, entry) for name, entry in REGISTRY.items() if key in entry.keys)
    return entry, extension_class(name)


def default_of(key: str) -> Any:
    """Returns the default of an extension's key."""
    return owner_of(key)[1].__dataclass_fields__[key].default
