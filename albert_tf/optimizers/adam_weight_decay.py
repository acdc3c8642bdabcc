"""Adam as BERT and ALBERT define it."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import fuse
from tfrecords.base.errors import UserError, first_line

# Under another backend models need no TensorFlow.
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

# Norms and biases, and weights of extensions that are not factors of a product.
NOT_DECAYED = (
    *("LayerNorm", "layer_norm", "final_norm", "bias"),
    r"depth_(signal|halting|injection)/(gate|table)",
)


def matches_any(path: str, patterns: Sequence[str]) -> bool:
    """Returns whether any regular expression matches in a variable's path."""
    return any(re.search(pattern, path) for pattern in patterns)


def sum_over_replicas(tensors: Any) -> Any:
    """Sums tensors over TensorFlow's replicas."""
    if keras.backend.backend() != "tensorflow":
        return tensors
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


# In TensorFlow the gradient of a lookup is sparse, with duplicate rows.
def _dense(gradient: Tensor) -> Tensor:
    if not hasattr(gradient, "indices"):
        return gradient
    return tf.convert_to_tensor(gradient)


@functools.cache
def _rule(beta_1: float, beta_2: float, epsilon: float, weight_decay: float) -> Callable:
    @fuse
    def rule(gradient: Tensor, variable: Tensor, momentum: Tensor, velocity: Tensor, counts: Tensor) -> tuple:
        gradient = ops.where(counts, gradient, 0.0)
        momentum = ops.where(counts, beta_1, 1.0) * momentum + (1.0 - beta_1) * gradient
        velocity = ops.where(counts, beta_2, 1.0) * velocity + (1.0 - beta_2) * ops.square(gradient)
        update = momentum / (ops.sqrt(velocity) + epsilon)
        return momentum, velocity, update + weight_decay * variable if weight_decay else update

    return rule


@keras.saving.register_keras_serializable("albert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Updates `w -= rate * (m / (sqrt(v) + epsilon) + weight_decay * w)`, m and v not bias-corrected.

    Source: google-research/albert:optimization.py:112-213. `keras.optimizers.AdamW` corrects the bias, and decays
    before the Adam step. `learning_rate` is a number, or a schedule over the number of past updates. Variables whose
    paths match the regular expressions `exclude_from_weight_decay` are not decayed.

    A gradient that is not finite skips the update: weights and moments stay, `skipped` counts it, and the step counter
    and schedule advance. Gradients are summed over TensorFlow's replicas before clipping; Keras clips first.

    Clipping is by the norm of summed gradients; google-research/albert's, without TPUs, counts repeated lookups of an
    embedding row separately.

    >>> weight = keras.Variable([1.0, -2.0], name="kernel")
    >>> optimizer = AdamWeightDecay(learning_rate=0.1, weight_decay=0.0)
    >>> optimizer.apply([ops.convert_to_tensor([1.0, 1.0])], [weight])
    >>> [round(float(value), 2) for value in ops.convert_to_numpy(weight)]
    [0.68, -2.32]
    >>> optimizer.updates, optimizer.figures()["gradient_norm"] > 1.41
    (1, True)
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        weight_decay: float | None = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = NOT_DECAYED,
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ):
        try:
            super().__init__(learning_rate=learning_rate, weight_decay=weight_decay or 0.0, name=name, **kwargs)
        except ValueError as error:
            raise UserError(f"{type(self).__name__}: {first_line(error)}") from None
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = list(exclude_from_weight_decay)

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.skipped = self.add_variable((), dtype="int32", name="skipped", aggregation="only_first_replica")
        self.add_moments(variables)
        # By index: the TensorFlow backend passes `update_step` a tf.Variable without the Keras path.
        self._decayed = [not matches_any(variable.path, self.exclude_from_weight_decay) for variable in variables]
        self._shown: list[str] = []
        self.last_norm = self.add_shown_variable("gradient_norm")

    def add_moments(self, variables: list[keras.Variable]) -> None:
        """Adds the running means of gradients."""
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def add_shown_variable(self, name: str) -> keras.Variable:
        """Adds a scalar that `figures()` reports; it is not saved."""
        variable = self.add_variable((), name=name, aggregation="only_first_replica")
        self._shown.append(variable)
        return variable

    @property
    def updates(self) -> int:
        return int(ops.convert_to_numpy(self.iterations))

    def figures(self) -> dict[str, float]:
        """Returns the last update's learning_rate, and gradient_norm before clipping."""
        schedule = isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        rate = self._learning_rate(max(self.updates - 1, 0)) if schedule else self.learning_rate
        norm = ops.convert_to_numpy(self.last_norm)
        return {"learning_rate": float(ops.convert_to_numpy(rate)), "gradient_norm": float(norm)}

    def save_own_variables(self, store: Any) -> None:
        for number, variable in enumerate(self._saved_variables()):
            store[str(number)] = ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        saved = self._saved_variables()
        if len(store.keys()) != len(saved):
            super().load_own_variables(store)  # Warns and loads nothing.
            return
        for number, variable in enumerate(saved):
            variable.assign(store[str(number)])

    def _saved_variables(self) -> list:
        shown = {id(variable) for variable in self._shown} if self.built else ()
        return [variable for variable in self.variables if id(variable) not in shown]

    def _get_current_learning_rate(self) -> Any:
        # Keras calls the schedule with the number of batches; an update may accumulate several.
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def apply(self, grads: list[Tensor | None], trainable_variables: list[keras.Variable] | None = None) -> None:
        present = [_dense(gradient) for gradient in grads if gradient is not None]
        summed = iter(sum_over_replicas(present))
        super().apply([None if gradient is None else next(summed) for gradient in grads], trainable_variables)

    def _all_reduce_sum_gradients(self, pairs: Any) -> Any:
        return pairs  # `apply` summed them: they are clipped before this call.

    def _apply_weight_decay(self, variables: Any) -> None:
        """Does nothing: `update_step` decays. Keras would decay all variables before the update."""

    # Keras's hook, not our `apply`: only here are the parts of an accumulated step summed, and the loss unscaled.
    def _clip_gradients(self, gradients: list[Tensor]) -> Any:
        norm = ops.sqrt(sum(ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in gradients))
        self.last_norm.assign(norm)
        self.skipped.assign_add(ops.cast(ops.logical_not(ops.isfinite(norm)), "int32"))
        if not self.global_clipnorm:
            return super()._clip_gradients(gradients)
        scale = self.global_clipnorm * ops.minimum(1.0 / norm, 1.0 / self.global_clipnorm)
        return [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        counts = ops.isfinite(self.last_norm)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        rule = _rule(self.beta_1, self.beta_2, self.epsilon, self.weight_decay if self._decayed[index] else 0.0)
        values = map(ops.convert_to_tensor, (gradient, variable, momentum, velocity, counts))
        new_momentum, new_velocity, update = rule(*values)
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        rate = ops.where(counts, ops.cast(learning_rate, variable.dtype), 0.0)
        self.assign_sub(variable, rate * self.adapt(update, variable, index))

    def adapt(self, update: Tensor, variable: Tensor, index: int) -> Tensor:
        return update

    def get_config(self) -> dict:
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": self.exclude_from_weight_decay,
        }
