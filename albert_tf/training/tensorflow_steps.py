"""A training and an evaluation step under TensorFlow, on one device or over the replicas of a strategy.

Keras 3's `fit` is not used over several replicas: it averages the replicas' means, which is not the mean over a batch
whose parts have different numbers of predicted words, and clips before it sums.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.layers.fused import fusing
from albert_tf.training.devices import Devices


class TensorFlowSteps:
    """Compiled steps of a pre-trainer. The metrics add up in the model until `results` is called."""

    def __init__(self, model: keras.Model, devices: Devices, jit_compile: bool):
        self.model = model
        self.strategy = devices.strategy
        # Of a batch spread over replicas, each loss is a share of the whole: sums over all stand below it.
        model.sum_over_replicas = _sum_over_replicas
        self._train = self._compiled(self._train_replica, jit_compile)
        self._evaluate = self._compiled(self._evaluate_replica, jit_compile)

    def batches(self, make_dataset: Callable[[int, int, int], tf.data.Dataset]):
        """A function that begins to iterate over what `make_dataset(parts, workers, worker)` reads: a worker's parts of
        batches, in turn. It may be called again: building a dataset costs half a second, iterating over it does not."""
        if self.strategy is None:
            dataset = make_dataset(1, 1, 0)
            return lambda: iter(dataset)

        def of_worker(context: tf.distribute.InputContext):
            workers = context.num_input_pipelines
            return make_dataset(context.num_replicas_in_sync // workers, workers, context.input_pipeline_id)

        distributed = self.strategy.distribute_datasets_from_function(of_worker)
        return lambda: iter(distributed)

    def train(self, batch: dict[str, Any]) -> None:
        self._train(batch)

    def evaluate(self, batch: dict[str, Any]) -> None:
        self._evaluate(batch)

    def results(self) -> dict[str, float]:
        """Means since the last call."""
        found = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        self.model.reset_metrics()
        return found

    def sync(self) -> None:
        """Brings the model's variables up to date; here they are."""

    def _compiled(self, replica_step, jit_compile: bool):
        if self.strategy is None:
            return tf.function(replica_step, autograph=False, jit_compile=jit_compile)
        return tf.function(lambda batch: self.strategy.run(replica_step, args=(batch,)), autograph=False)

    def _train_replica(self, batch):
        variables = self.model.trainable_variables
        with fusing():
            with tf.GradientTape() as tape:
                predictions = self.model(batch, training=True)
                loss = self.model.compute_loss(x=batch, y_pred=predictions)
            self.model.optimizer.apply(tape.gradient(loss, variables), variables)
        self.model.compute_metrics(batch, None, predictions)

    def _evaluate_replica(self, batch):
        self.model.compute_metrics(batch, None, self.model(batch, training=False))


def _sum_over_replicas(value):
    context = tf.distribute.get_replica_context()
    return value if context.num_replicas_in_sync == 1 else context.all_reduce(tf.distribute.ReduceOp.SUM, value)
