"""What an extension of the encoder is: a frozen dataclass in one file, whose fields are the keys that it reads."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from albert_tf.base.fields import check_value
from albert_tf.registry import Spec, Weights, owner_of, setting_of
from tfrecords.base.errors import UserError

if TYPE_CHECKING:
    from albert_tf.config import AlbertConfig

# What learned gates begin with: 0: they are closed, and the model is exactly the one without; 1: the published form.
GATE = {"gate_init": ("from 0 to 1", lambda value: value <= 1)}


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
    free: ClassVar[tuple[str, ...]] = ()  # keys that a run may set otherwise than the configuration of its weights
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


def check_extensions(config: "AlbertConfig", defaults: Mapping[str, Any]) -> None:
    """Checks the keys of extensions, and which go together; `defaults` are those of the core's keys.

    Raises:
        UserError: a value is impossible, needs an extension that is not requested, or excludes another.
    """
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
