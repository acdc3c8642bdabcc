from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.optimizers.adam_weight_decay import AdamWeightDecay


@keras.saving.register_keras_serializable("albert_tf")
class Muon(AdamWeightDecay, keras.optimizers.Muon):
    """Is `keras.optimizers.Muon`, with the skipped updates, the clipping and the weight decay of AdamWeightDecay.

    Matrices move by their orthogonalized momentum (Jordan et al. 2024), all other variables by Adam. Embeddings, and
    variables whose paths match the regular expressions `exclude_layers`, are no matrices.

    >>> kernel = keras.Variable([[3.0, 0.0], [0.0, 0.1]], name="kernel")
    >>> optimizer = Muon(learning_rate=0.1, weight_decay=0.0)
    >>> optimizer.apply([ops.convert_to_tensor([[1.0, 0.0], [0.0, 1.0]])], [kernel])
    >>> optimizer.adam_velocities
    [None]
    """

    def __init__(
        self, learning_rate: Any = 1e-3, name: str = "muon", exclude_layers: Sequence[str] = ("bias",), **kwargs: Any
    ):
        super().__init__(learning_rate, name=name, exclude_layers=list(exclude_layers), **kwargs)
        self.adam_beta_1, self.adam_beta_2 = self.beta_1, self.beta_2

    def add_moments(self, variables: list[keras.Variable]) -> None:
        """Does nothing: Keras's optimizer has moments of its own."""

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        counts, index = ops.isfinite(self.last_norm), self._get_variable_index(variable)
        gradient, rate = (
            ops.cast(ops.where(counts, value, 0.0), variable.dtype) for value in (gradient, learning_rate)
        )
        moments = [one for one in (self.momentums[index], self.adam_velocities[index]) if one is not None]
        # Copies: a tensor that is only read from a variable changes with it.
        before = [ops.add(one, 0.0) for one in moments]
        # Keras decays in a step of its own, which would decay biases too.
        self.assign_sub(variable, rate * (self.weight_decay if self._decayed[index] else 0.0) * variable)
        keras.optimizers.Muon.update_step(self, gradient, variable, rate)
        for one, value in zip(moments, before):
            self.assign(one, ops.where(counts, one, value))
