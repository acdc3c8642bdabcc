"""Adam with decoupled weight decay and no bias correction, as BERT and ALBERT define it."""

import functools
import re
from collections.abc import Sequence

import keras
from keras import ops

from albert_tf.layers.fused import fuse


def matches_any(path: str, patterns: Sequence[str]) -> bool:
    return any(re.search(pattern, path) for pattern in patterns)


def _values(gradient):
    """What a gradient's norm counts: of indexed slices the slices, as the official code does."""
    return getattr(gradient, "values", gradient)


@functools.cache
def _rule(beta_1: float, beta_2: float, epsilon: float, weight_decay_rate: float):
    """The function (gradient, variable, momentum, velocity, counts) to the new moments and the unscaled update."""

    @fuse
    def rule(gradient, variable, momentum, velocity, counts):
        momentum = ops.where(counts, beta_1, 1.0) * momentum + (1.0 - beta_1) * gradient
        velocity = ops.where(counts, beta_2, 1.0) * velocity + (1.0 - beta_2) * ops.square(gradient)
        update = momentum / (ops.sqrt(velocity) + epsilon)
        return momentum, velocity, update + weight_decay_rate * variable if weight_decay_rate else update

    return rule


@keras.saving.register_keras_serializable("albert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """`w -= rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)`, with m and v not bias-corrected.

    Source: google-research/albert:optimization.py:112-213. `keras.optimizers.AdamW` differs: it corrects the bias of m
    and v and decays the variable before the Adam step.

    An update whose gradients are not all finite is not made: weights and moments stay as they are, `skipped` counts it,
    and the step counter, and with it the schedule, goes on.

    Args:
        learning_rate: float or schedule.
        weight_decay_rate: factor of the decay term.
        beta_1, beta_2: decay of the first and second moment.
        epsilon: added to the root of the second moment.
        exclude_from_weight_decay: regular expressions; a variable whose path matches any is not decayed.
        **kwargs: of `keras.optimizers.Optimizer` (`global_clipnorm`, `gradient_accumulation_steps`, ...).
    """

    def __init__(
        self,
        learning_rate=1e-3,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] = ("LayerNorm", "layer_norm", "bias"),
        name: str = "adam_weight_decay",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = list(exclude_from_weight_decay)

    def build(self, variables) -> None:
        if self.built:
            return
        super().build(variables)
        self.skipped = self.add_variable((), dtype="int32", name="skipped", aggregation="only_first_replica")
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        # By index, since the TensorFlow backend hands `update_step` a tf.Variable, which has lost the Keras path.
        self._decayed = [not matches_any(variable.path, self.exclude_from_weight_decay) for variable in variables]

    def _get_current_learning_rate(self):
        # Keras asks the schedule with the number of batches, of which an update may have accumulated several.
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def _all_reduce_sum_gradients(self, pairs):
        return pairs  # They are summed before they are clipped: see `_backend_update_step`.

    def _clip_gradients(self, gradients):
        # The global norm, which tells finite from not, is taken only once: see below.
        return gradients if self.global_clipnorm else super()._clip_gradients(gradients)

    def _backend_update_step(self, gradients, trainable_variables, learning_rate) -> None:
        """Sums over replicas and clips; where a gradient is not finite, hands on zeros and says that they do not count.

        The choice is one branch around all gradients and some scalars: no pass over the weights is added.
        """
        if hasattr(super(), "_all_reduce_sum_gradients"):  # Only TensorFlow's replicas have gradients of their own.
            pairs = super()._all_reduce_sum_gradients(list(zip(gradients, trainable_variables)))
            gradients = [gradient for gradient, _ in pairs]
        norm = ops.sqrt(sum(ops.sum(ops.square(ops.cast(_values(gradient), "float32"))) for gradient in gradients))
        finite = ops.isfinite(norm)
        # An embedding's gradient arrives as indexed slices on the TensorFlow backend; slices of one row add up here.
        gradients = [ops.convert_to_tensor(gradient) for gradient in gradients]
        scale = None
        if self.global_clipnorm:
            scale = self.global_clipnorm * ops.minimum(1.0 / norm, 1.0 / self.global_clipnorm)

        def counted():
            if scale is None:
                return gradients
            return [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]

        gradients = ops.cond(finite, counted, lambda: [ops.zeros_like(gradient) for gradient in gradients])
        self.skipped.assign_add(ops.cast(ops.logical_not(finite), "int32"))
        super()._backend_update_step(gradients, trainable_variables, (learning_rate, finite))

    def update_step(self, gradient, variable, learning_rate) -> None:
        """learning_rate: the rate, and whether the gradients count (bool); those that do not are zeros."""
        rate, counts = learning_rate
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        rule = _rule(self.beta_1, self.beta_2, self.epsilon, self.weight_decay_rate if self._decayed[index] else 0.0)
        values = map(ops.convert_to_tensor, (gradient, variable, momentum, velocity, counts))
        new_momentum, new_velocity, update = rule(*values)
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        rate = ops.where(counts, ops.cast(rate, variable.dtype), 0.0)
        self.assign_sub(variable, rate * self.adapt(update, variable, index))

    def adapt(self, update, variable, index: int):
        """The layer-wise scaling of the update, which plain Adam does not have."""
        return update

    def get_config(self) -> dict:
        # The base class lists its own `weight_decay`, which acts outside the update and stays unused here.
        config = super().get_config()
        del config["weight_decay"]
        return config | {
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": self.exclude_from_weight_decay,
        }
