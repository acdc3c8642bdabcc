from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.optimizers.adam_weight_decay import AdamWeightDecay, matches_any

# Tables, of which a step reads few rows; the embedding projection is an ordinary matrix.
_TABLES = r"(word|position|token_type|mask|segment)_embeddings?$"
# Vectors by head or step, and the heads' products with few outputs.
_OTHERS = (
    "bias",
    r"depth_(signal|halting|connections|injection)/",
    r"(_head|classifier|score|start|end|answer)/kernel$",
)
NO_MATRICES = (_TABLES, *_OTHERS)
# Keras's default was 6 before it was 5.
_STEPS = 5


@keras.saving.register_keras_serializable("albert_tf")
class Muon(AdamWeightDecay):
    """Orthogonalizes the momentum of every matrix; other variables follow AdamWeightDecay.

    Jordan et al. 2024 (github.com/KellerJordan/Muon): m = momentum * m + gradient, g = gradient + momentum * m, w -=
    rate * (0.2 * sqrt(max(rows, columns)) * orthogonal(g) + weight_decay * w). The factor makes updates about as
    large as Adam's, so both rules share rate and decay (Liu et al. 2025, arXiv:2502.16982, section 2.2). `orthogonal`
    is the five Newton-Schulz steps of `keras.optimizers.Muon`.

    Variables of two axes are matrices, those of three are stacks of matrices, unless their paths match the regular
    expressions `exclude_from_muon`, as embedding tables and the heads' last layers do. Other variables' rate is
    multiplied by `adam_ratio`. Weight decay, skipped updates and clipping are AdamWeightDecay's.

    `keras.optimizers.Muon` differs: it excludes the embedding projection and stacks, includes two-axis biases and step
    signals, decays biases and norms, and applies gradients that are not finite.

    >>> kernel = keras.Variable([[3.0, 0.0], [0.0, 0.1]], name="kernel")
    >>> optimizer = Muon(learning_rate=0.1, weight_decay=0.0)
    >>> optimizer.apply([ops.convert_to_tensor([[1.0, 0.0], [0.0, 1.0]])], [kernel])
    >>> optimizer.rules()
    {'kernel': 'muon'}
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        momentum: float = 0.95,
        adam_ratio: float = 1.0,
        exclude_from_muon: Sequence[str] = NO_MATRICES,
        name: str = "muon",
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum, self.adam_ratio = momentum, adam_ratio
        self.exclude_from_muon = list(exclude_from_muon)
        # Only its orthogonalization is called.
        self._newton_schulz = keras.optimizers.Muon()

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._is_matrix = [
            len(variable.shape) in (2, 3) and not matches_any(variable.path, self.exclude_from_muon)
            for variable in variables
        ]
        self._paths = [variable.path for variable in variables]

    def rules(self) -> dict[str, str]:
        """Returns each variable's rule, "muon" or "adam", by path."""
        return {path: "muon" if matrix else "adam" for path, matrix in zip(self._paths, self._is_matrix)}

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        index = self._get_variable_index(variable)
        if not self._is_matrix[index]:
            super().update_step(gradient, variable, learning_rate * self.adam_ratio)
            return
        counts = ops.isfinite(self.last_norm)
        gradient = ops.where(counts, ops.cast(gradient, variable.dtype), 0.0)
        momentum = ops.where(counts, self.momentum, 1.0) * ops.convert_to_tensor(self._momentums[index]) + gradient
        self.assign(self._momentums[index], momentum)
        direction = gradient + self.momentum * momentum
        size = 0.2 * max(variable.shape[-2:]) ** 0.5
        update = size * self._newton_schulz.zeropower_via_newtonschulz5(direction, _STEPS)
        decay = self.weight_decay if self._decayed[index] else 0.0
        rate = ops.where(counts, ops.cast(learning_rate, variable.dtype), 0.0)
        self.assign_sub(variable, rate * (update + decay * ops.convert_to_tensor(variable)))

    def get_config(self) -> dict:
        own = {"momentum": self.momentum, "adam_ratio": self.adam_ratio, "exclude_from_muon": self.exclude_from_muon}
        return super().get_config() | own
