"""Makes Keras's losses and metrics read logits; by their names they read probabilities."""

import inspect
from types import ModuleType
from typing import Any

import keras

from tfrecords.base.errors import UserError

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
