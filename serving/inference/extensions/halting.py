from typing import Any

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions.halting import HaltedRunner
from albert_tf.layers.depth import Runner
from serving.inference.kernels import ExportedExtension


class ExportedHalting(ExportedExtension):
    """Computes halting probabilities without matrix products, whose rounding depends on the number of tokens."""

    def around(self, runner: Runner) -> Runner:
        return _Halted(runner, self.extension, self.weights)


class _Halted(HaltedRunner):
    def _probability(self, state: Tensor) -> Tensor:
        weights = self.weights
        return weights["gate"] * tf.sigmoid(tf.reduce_sum(state * weights["kernel"], axis=1) + weights["bias"])

    def report(self, state: Any) -> tuple[dict, list, dict]:
        outputs, losses, values = self.inner.report(state[0])
        return outputs | {"steps": tf.cast(self.rows.rectangle(state[1].steps), tf.int32)}, losses, values
