"""The base classes of models with heads; Keras's losses and metrics read logits here, by their names probabilities.

The loss of a part of a batch is its share of the whole batch's loss. Training first adds up the `loss_divisors` of all
parts; each loss term is divided by its sum. If a loss compares rows, the model's `survey` computes the compared values
of all parts before.
"""

import contextlib
import contextvars
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple, Self

import keras
from absl import logging
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import plain
from albert_tf.base.model import BaseModel, check_data, has_adapters
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.padded import check_values
from albert_tf.optimizers import AdamWeightDecay
from tfrecords.base.errors import UserError

# Under another backend models need no TensorFlow.
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

# The divisor, by Keras's name of a loss's reduction.
_DIVISORS = {"sum_over_batch_size": "rows", "mean": "rows", "mean_with_sample_weight": "weights", "sum": "nothing"}

Divisors = dict[str, Tensor]


class BatchPart(NamedTuple):
    """The divisors of losses in a part of a batch (`own`) and in the whole batch.

    `whole` also has the `survey` results, and the index of the part's `first_row` in these.
    """

    own: Divisors
    whole: Divisors

    def scale(self, name: str) -> Tensor:
        """Returns the factor that turns the part's mean loss per replica into its share of the whole batch's loss."""
        if name == "nothing":
            return 1.0
        # Exactly 1 where replicas have equal parts.
        return ops.divide_no_nan(self.own[name] * _replicas(), self.whole[name])


_PART: contextvars.ContextVar[BatchPart | None] = contextvars.ContextVar("part", default=None)


@contextlib.contextmanager
def part_of(own: Divisors, whole: Divisors) -> Iterator[None]:
    """A context in which losses are shares of a whole batch's loss."""
    before = _PART.set(BatchPart(own, whole))
    try:
        yield
    finally:
        _PART.reset(before)


def current_part() -> BatchPart | None:
    """Returns the part whose loss is being computed; None for a whole batch."""
    return _PART.get()


def count(x: Any, sample_weight: Tensor = None) -> Divisors:
    """Counts the rows, and adds up their weights (default: 1)."""
    ids = x["input_ids"] if isinstance(x, dict) else x
    rows = ops.cast(ops.shape(ids)[0], "float32")
    return {"rows": rows, "weights": rows if sample_weight is None else ops.sum(ops.cast(sample_weight, "float32"))}


def share_of_batch(loss: Tensor, name: str = "rows") -> Tensor:
    """Returns a part's share of a mean loss; the shares of all parts and replicas sum to the mean."""
    part, replicas = current_part(), _replicas()
    # Keras's own losses do the same within a `tf.distribute` strategy.
    loss = loss / replicas if replicas > 1 else loss
    return loss if part is None else loss * part.scale(name)


def divisor_of(loss: Any) -> str:
    """Returns the divisor of losses passed to `compile`: "rows", "weights" or "nothing"; UserError if they differ."""
    # A name or a function becomes a loss with Keras's default.
    reductions = {
        getattr(one, "reduction", "sum_over_batch_size") for one in keras.tree.flatten(loss) if one is not None
    }
    found = {_DIVISORS.get(reduction) for reduction in reductions}
    if len(found) != 1 or None in found:
        raise UserError(
            f"a batch in parts, or over several devices, cannot have losses with the reductions "
            f"{', '.join(sorted(map(str, reductions)))}; give all losses one of {', '.join(_DIVISORS)}"
        )
    return str(found.pop())


def _replicas() -> int:
    if keras.backend.backend() != "tensorflow":
        return 1
    return tf.distribute.get_strategy().num_replicas_in_sync


# Losses and metrics of Keras that cannot read logits.
_OF_PROBABILITIES = ("KLDivergence", "KlDivergence", "Poisson", "Dice", "Tversky")


def loss_of_logits(loss: Any, probabilities: str) -> Any:
    """Returns a loss that reads logits in place of Keras's `loss`, which may be a name, function or class.

    `probabilities` is the function that turns the logits into probabilities: "sigmoid" or "softmax".

    Raises:
        UserError: a loss that reads probabilities.
    """
    if isinstance(loss, (list, tuple)):
        return [loss_of_logits(one, probabilities) for one in loss]
    if isinstance(loss, dict) and "class_name" not in loss:
        return {name: loss_of_logits(one, probabilities) for name, one in loss.items()}
    return _of_logits(loss, keras.losses, probabilities)


def metrics_of_logits(metrics: Any, probabilities: str) -> Any:
    """Returns metrics that read logits; see `loss_of_logits`."""
    if metrics is None:
        return None
    return [_of_logits(metric, keras.metrics, probabilities) for metric in keras.tree.flatten(metrics)]


def _of_logits(given: Any, family: ModuleType, probabilities: str) -> Any:
    is_sigmoid, name = probabilities == "sigmoid", str(given).lower()
    if name in ("accuracy", "acc"):
        # Keras takes the largest of several numbers, and compares a single one with 0.5.
        return keras.metrics.BinaryAccuracy(given, threshold=0.0) if is_sigmoid else given
    if name in ("ce", "crossentropy"):
        raise _refusal(given, "give sparse_categorical_crossentropy, categorical_crossentropy or binary_crossentropy")
    given = family.get(given) if isinstance(given, dict) else given
    found = family.get(given)
    kind = found if inspect.isfunction(found) else type(found)
    if not kind.__module__.startswith("keras."):
        return given
    if isinstance(given, (keras.losses.Loss, keras.metrics.Metric)):
        if given.get_config().get("from_logits") is False:
            raise _refusal(kind.__name__, "give it from_logits=True")
        return given
    name = kind.__name__.title().replace("_", "") if found is kind else kind.__name__
    kind = getattr(family, name, kind)
    takes = inspect.signature(kind).parameters
    threshold = next((one for one in ("thresholds", "threshold") if one in takes and name[:1] != "F"), None)
    if "from_logits" in takes and (is_sigmoid or threshold is None):
        options: dict[str, Any] = {"from_logits": True}
    elif threshold and is_sigmoid:
        options = {threshold: 0.0}
    elif threshold or name in _OF_PROBABILITIES:
        raise _refusal(given, "give another")
    else:
        return given
    return kind(**options, **({"name": given} if isinstance(given, str) else {}))


def _refusal(name: Any, remedy: str) -> UserError:
    return UserError(f"'{name}' reads probabilities, but this model returns logits; {remedy}")


# Learning rates of LoRA adapters, which learn nothing at the rates of whole models: that of Hu et al. 2021
# (arXiv:2106.09685), table 9, and the least rate in use.
_LORA_RATE, _LEAST_LORA_RATE = 4e-4, 1e-4


class HolderModel(BaseModel):
    """A model that saves another model, the attribute that `holds` names.

    `has_own_loss` is whether `compute_loss` and `compute_metrics` compute a loss and metrics of the model's own.
    """

    holds = "model"
    has_own_loss = False

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any) -> None:
        given = {"loss": loss} | kwargs if self.has_own_loss else {}
        for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
            if given.get(name) is not None:
                raise UserError(f"an {type(self).__name__} has its own loss and metrics; leave out {name}")
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras leaves a model with a `compile` of its own uncompiled.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def loss_divisors(self, x: Any, y: Any = None, sample_weight: Tensor = None) -> Divisors:
        return count(x, sample_weight)

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        # Keras drops the weights of data without labels.
        if self.has_own_loss:
            self.check_weights(sample_weight)

    def check_weights(self, sample_weight: Tensor, y_pred: Any = None) -> None:
        """Raises UserError for a sample_weight that the loss does not read; `y_pred` are predictions for labels."""
        if sample_weight is None:
            return
        name, given = type(self).__name__, tuple(sample_weight.shape)
        if self.has_own_loss:
            raise plain(UserError(f"{name} has its own loss, which reads no sample_weight; leave it out"))
        # Keras would multiply arrays of other shapes if they happen to fit.
        rank = len(y_pred.shape) - 1
        if given[rank:] not in ((), (1,)) or len(given) < rank or (rank == 2 and given[1] == 1 != y_pred.shape[1]):
            needed = "each token, [batch, sequence]" if rank == 2 else "each row, [batch]"
            raise plain(UserError(f"{name}: sample_weight has {len(given)} axes; give a number for {needed}"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), self.holds: keras.saving.serialize_keras_object(getattr(self, self.holds))}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return super().from_config({**config, cls.holds: keras.saving.deserialize_keras_object(config[cls.holds])})


class EncoderModel(HolderModel):
    """A model that contains an AlbertEncoder, `encoder`.

    `encoder` may be an AlbertConfig; `pooler` then decides whether the new encoder has a pooler.
    """

    holds = "encoder"
    # The default of `compile` for fine-tuning.
    learning_rate = 2e-5
    # The function that turns outputs into probabilities, "softmax" or "sigmoid"; "" if they are no logits.
    probabilities = ""

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, pooler: bool = True, **kwargs: Any):
        if isinstance(encoder, AlbertConfig):
            encoder = AlbertEncoder(encoder, pooler=pooler, dtype=kwargs.get("dtype"))
        if not isinstance(encoder, AlbertEncoder):
            hint = "; give its .encoder" if isinstance(encoder, EncoderModel) else ""
            raise UserError(
                f"{type(self).__name__} needs an AlbertEncoder or an AlbertConfig, not a {type(encoder).__name__}{hint}"
            )
        kwargs.setdefault("dtype", encoder.dtype_policy)
        super().__init__(**kwargs)
        self.encoder = encoder

    def default_loss(self) -> dict[str, Any]:
        """Returns loss and metrics for a `compile` without a loss."""
        return {}

    def returns_logits(self, loss: Any) -> bool:
        """Returns whether outputs are logits for metrics beside `loss`, if the model has `probabilities`."""
        return True

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Compiles as keras.Model does, with defaults.

        Args:
            optimizer: "auto" is ALBERT's AdamW at `learning_rate`, or 4e-4 with LoRA adapters, clipped at norm 1.
            loss: "auto" is the task's loss and metrics; your own metrics replace the task's. Keras's losses and
                metrics by name read logits where the model returns logits.
            **kwargs: for `keras.Model.compile`.
        """
        is_lora = has_adapters(self)
        if optimizer == "auto":
            rate = max(self.learning_rate, _LORA_RATE) if is_lora else self.learning_rate
            optimizer = AdamWeightDecay(rate, global_clipnorm=1.0)
        if loss == "auto":
            defaults = self.default_loss()
            loss = defaults.pop("loss", None)
            own = kwargs.get("metrics") is not None or kwargs.get("weighted_metrics") is not None
            kwargs = kwargs if own else defaults | {key: value for key, value in kwargs.items() if value is not None}
        if self.probabilities:
            loss = loss_of_logits(loss, self.probabilities)
            for name in ("metrics", "weighted_metrics") if self.returns_logits(loss) else ():
                kwargs[name] = metrics_of_logits(kwargs.get(name), self.probabilities)
        # Keras would reuse an earlier compile's metrics.
        self._compile_metrics = None
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        if is_lora and self.optimizer is not None:
            _warn_of_low_rate(self.optimizer)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Tensor = None, training: bool = True
    ) -> Tensor:
        # Here too: under JAX Keras computes metrics in another trace than the forward pass.
        self.encoder.measure()
        self.check_weights(sample_weight, y_pred)
        part = current_part()
        if part is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training=training)
        loss = self._compile_loss(y, y_pred, sample_weight) * part.scale(divisor_of(self.loss))
        added = [self._aggregate_additional_loss(one) for one in self.losses]
        return loss + sum(added) * part.scale("rows") if added else loss

    def with_added_losses(self, loss: Tensor) -> Tensor:
        self.encoder.measure()
        return loss + share_of_batch(sum(self.losses)) if self.losses else loss

    def compute_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.encoder.measure()
        return super().compute_metrics(*args, **kwargs)

    def _check_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        super()._check_data(x, y, sample_weight)
        check_data(x, y, lambda features: check_values(features, self.encoder.config))

    def head_variables(self) -> dict[str, keras.Variable]:
        """Returns the variables outside the encoder by their names in checkpoints."""
        return {}


def variables_of(prefix: str, layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Returns a layer's variables as prefix/kernel, prefix/bias and so on."""
    return {f"{prefix}/{variable.name}": variable for variable in layer.variables}


def _warn_of_low_rate(optimizer: keras.Optimizer) -> None:
    rate = optimizer.get_config()["learning_rate"]
    # Schedules have a rate per step; Keras stores a number as float32.
    if isinstance(rate, float) and rate < 0.999 * _LEAST_LORA_RATE:
        logging.warning(
            "LoRA adapters learn next to nothing at a learning rate of %g; usual rates are 1e-4 to 1e-3", rate
        )
