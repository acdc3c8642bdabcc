"""Adam with decoupled weight decay and no bias correction, as BERT and ALBERT define it."""

import re
from collections.abc import Sequence

import keras
from keras import ops


def matches_any(path: str, patterns: Sequence[str]) -> bool:
    return any(re.search(pattern, path) for pattern in patterns)


@keras.saving.register_keras_serializable("albert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """`w -= rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)`, with m and v not bias-corrected.

    Source: google-research/albert:optimization.py:112-213. `keras.optimizers.AdamW` differs: it corrects the bias of m
    and v and decays the variable before the Adam step.

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
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        # By index, since the TensorFlow backend hands `update_step` a tf.Variable, which has lost the Keras path.
        self._decayed = [not matches_any(variable.path, self.exclude_from_weight_decay) for variable in variables]

    def update_step(self, gradient, variable, learning_rate) -> None:
        # An embedding's gradient arrives as indexed slices on the TensorFlow backend; slices of one row add up here.
        gradient = ops.cast(ops.convert_to_tensor(gradient), variable.dtype)
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        self.assign(momentum, self.beta_1 * momentum + (1.0 - self.beta_1) * gradient)
        self.assign(velocity, self.beta_2 * velocity + (1.0 - self.beta_2) * ops.square(gradient))
        update = momentum / (ops.sqrt(velocity) + self.epsilon)
        if self._decayed[index]:
            update = update + self.weight_decay_rate * variable
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * self.adapt(update, variable, index))

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
