"""A training and an evaluation step under TensorFlow, on one device or over the replicas of a strategy.

Keras 3's `fit` is not used over several replicas: it averages the replicas' means, which is not the mean over a batch
whose parts have different numbers of predicted words, and knows no workers.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.layers.fused import fusing
from albert_tf.optimizers.adam_weight_decay import sum_over_replicas
from albert_tf.training.devices import Devices


class TensorFlowSteps:
    """Compiled steps of a pre-trainer. The metrics add up in the model until `results` is called.

    parts: calls of `train` that make an update, with the mean of their gradients. Each replica adds up its own; they
    are summed over the replicas once an update.
    """

    def __init__(self, model: keras.Model, devices: Devices, jit_compile: bool, parts: int = 1):
        self.model, self.parts = model, parts
        self.strategy = devices.strategy
        self._part = 0
        with devices.scope():
            self._sums = [_local_zeros(variable) for variable in model.trainable_variables] if parts > 1 else []
        # What XLA compiles must not talk to other replicas: over several it is each one's gradients alone.
        whole = jit_compile and self.strategy is None
        if jit_compile and not whole:
            self._gradients = tf.function(self._gradients, autograph=False, jit_compile=True)
        self._add = self._compiled(self._add_replica, whole)
        self._update = self._compiled(self._update_replica, whole)
        self._evaluate = self._compiled(self._evaluate_replica, whole)

    def batches(self, make_dataset: Callable[[int, int, int], tf.data.Dataset], training: bool = False):
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
        self._part = (self._part + 1) % self.parts
        (self._add if self._part else self._update)(batch)

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

    def _gradients(self, batch, divisors):
        """Of this replica's share of the loss; a list of tensors, or indexed slices."""
        with fusing():
            with tf.GradientTape() as tape:
                predictions = self.model(batch, training=True)
                loss = self.model.compute_loss(x=batch | {"loss_divisors": divisors}, y_pred=predictions)
            gradients = tape.gradient(loss, self.model.trainable_variables)
        self.model.compute_metrics(batch, None, predictions)
        return gradients

    def _gradients_of(self, batch):
        # Of a batch spread over replicas, each loss is a share of the whole: sums over all stand below it.
        return self._gradients(batch, sum_over_replicas(self.model.loss_divisors(batch)))

    def _add_replica(self, batch):
        for total, gradient in zip(self._sums, self._gradients_of(batch)):
            total.assign_add(tf.convert_to_tensor(gradient))

    def _update_replica(self, batch):
        gradients = self._gradients_of(batch)
        if self._sums:
            gradients = [(total + gradient) / self.parts for total, gradient in zip(self._sums, gradients)]
            with tf.control_dependencies(gradients):
                for total in self._sums:
                    total.assign(tf.zeros_like(total))
        with fusing():
            self.model.optimizer.apply(gradients, self.model.trainable_variables)

    def _evaluate_replica(self, batch):
        self.model.compute_metrics(batch, None, self.model(batch, training=False))


def _local_zeros(variable: keras.Variable) -> tf.Variable:
    """A variable that each replica has its own value of."""
    return tf.Variable(
        tf.zeros(variable.shape, variable.dtype), trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM,
    )  # fmt: skip
