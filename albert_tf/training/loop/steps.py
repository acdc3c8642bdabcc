"""Training and evaluation steps under TensorFlow.

Keras 3's `fit` averages the replicas' means, which is wrong if they have different numbers of masked words.
"""

import contextlib
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.base.layers import fusing
from albert_tf.models.base import part_of
from albert_tf.optimizers.adam_weight_decay import sum_over_replicas
from albert_tf.training.loop.devices import Devices


class Steps:
    """Compiled training and evaluation steps of a model, whose metrics accumulate until `results` is called.

    `train` makes one update from the `parts` parts of a batch. Each replica sums their gradients; the replicas' sums
    are added once per update.
    """

    def __init__(self, model: keras.Model, devices: Devices, jit_compile: bool, parts: int = 1):
        self.model, self.devices, self.parts, self.strategy = model, devices, parts, devices.strategy
        # A loss that compares the rows of the whole batch needs a first pass over all parts (gradient caching).
        is_cut = parts > 1 or devices.strategy is not None
        self._surveys = is_cut and getattr(model, "needs_survey", False)
        self._loss = next((metric for metric in model.metrics if metric.name == "loss"), None)
        with devices.scope():
            self._sums = [_local_zeros(variable) for variable in model.trainable_variables] if parts > 1 else []
        # XLA cannot communicate between replicas: over several it compiles only each one's gradients.
        self._whole = jit_compile and self.strategy is None
        if jit_compile and not self._whole:
            self._gradients = tf.function(self._gradients, autograph=False, jit_compile=True)

    def batches(self, make_dataset: Callable[[int, int, int], tf.data.Dataset], training: bool = False):
        """Compiles the steps, and returns a function that starts an iteration over the batches.

        `make_dataset(parts, workers, worker)` returns the batches.
        """
        if self.strategy is None:
            dataset = make_dataset(1, 1, 0)
        else:

            def of_worker(context: tf.distribute.InputContext):
                workers = context.num_input_pipelines
                return make_dataset(context.num_replicas_in_sync // workers, workers, context.input_pipeline_id)

            dataset = self.strategy.distribute_datasets_from_function(of_worker)
        if training:
            known = {"divisors": tf.TensorSpec([None])} if self.parts > 1 else {}
            if self._surveys:
                known |= dict.fromkeys(self.model.surveyed, tf.TensorSpec([None, None]))
                known["first_row"] = tf.TensorSpec([], tf.int32)
            self._add, self._update = (
                self._compiled(step, dataset.element_spec, known) for step in (self._add_replica, self._update_replica)
            )
            self._count, self._survey = (
                self._compiled(step, dataset.element_spec) for step in (self._count_replica, self._survey_replica)
            )
        else:
            self._evaluate = self._compiled(self._evaluate_replica, dataset.element_spec)
        return lambda: iter(dataset)

    def train(self, *parts: Any) -> None:
        known, first_row = self._known(parts), 0
        for number, part in enumerate(parts, 1):
            if self._surveys:
                known["first_row"] = tf.constant(first_row)
                first_row += self.shape(part)[0]
            step = self._add if number < len(parts) else self._update
            step(part, known)

    def _known(self, parts: tuple) -> dict[str, tf.Tensor]:
        known = {}
        if len(parts) > 1:
            known["divisors"] = tf.add_n([self._of_first(self._count(part)) for part in parts])
        if self._surveys:
            # The steps that follow draw the same dropout masks.
            seeds = [one.state for layer in self.model._flatten_layers() for one in layer._seed_generators]
            before = [keras.ops.convert_to_numpy(seed) for seed in seeds]
            found = [self._of_first(self._survey(part)) for part in parts]
            known |= {name: tf.concat([one[name] for one in found], axis=0) for name in found[0]}
            for seed, value in zip(seeds, before):
                seed.assign(value)
        return known

    def _of_first(self, value: Any) -> Any:
        if self.strategy is None:
            return value
        return tf.nest.map_structure(lambda leaf: self.strategy.experimental_local_results(leaf)[0], value)

    def evaluate(self, batch: dict[str, Any]) -> None:
        self._evaluate(batch)

    def running(self) -> dict[str, float]:
        """Returns the means of the metrics since the last call of `results`."""
        return {name: float(value) for name, value in self.model.get_metrics_result().items()}

    def results(self) -> dict[str, float]:
        """Returns the same means as `running`, and resets them."""
        figures = self.running()
        self.model.reset_metrics()
        return figures

    def shape(self, batch: Any) -> tuple[int, int]:
        """Returns a batch's number of rows over all devices, and of tokens per row."""
        ids = keras.utils.unpack_x_y_sample_weight(batch)[0]["input_ids"]
        parts = [ids] if self.strategy is None else self.strategy.experimental_local_results(ids)
        rows = sum(math.prod(part.shape[:-1]) for part in parts)
        return self.devices.processes * rows, parts[0].shape[-1]

    def _compiled(self, replica_step, *specs):
        # With the dataset's own shapes, one graph takes batches of every length where lengths differ. Packed batches
        # have few numbers of rows: a graph for each has shapes that are known, which the fused chains need.
        is_packed = isinstance(specs[0], dict) and "sequence_ids" in specs[0]
        compiled = functools.partial(tf.function, autograph=False, input_signature=None if is_packed else specs)
        if self.strategy is None:
            return compiled(replica_step, jit_compile=self._whole)
        return compiled(lambda *given: self.strategy.run(replica_step, args=given))

    def _gradients(self, batch, whole):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        own = self.model.loss_divisors(x, y, weight) if whole else {}
        with fusing(), part_of(own, whole) if whole else contextlib.nullcontext():
            with tf.GradientTape() as tape:
                predictions = self.model(x, training=True)
                loss = self.model.compute_loss(x, y, predictions, weight, training=True)
            gradients = tape.gradient(loss, self.model.trainable_variables)
        if self._loss is not None:
            loss = loss * (whole["rows"] / own["rows"]) if whole else loss
            self._loss.update_state(loss, tf.shape(x["input_ids"])[0])
        self.model.compute_metrics(x, y, predictions, weight)
        return gradients

    def _gradients_of(self, batch, known):
        if self.strategy is None and self.parts == 1:
            return self._gradients(batch, {})
        counted = self.model.loss_divisors(*keras.utils.unpack_x_y_sample_weight(batch))
        names, surveyed = sorted(counted), {name: value for name, value in known.items() if name != "divisors"}
        if surveyed:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            surveyed["first_row"] += replica * tf.cast(counted["rows"], tf.int32)
        if "divisors" in known:
            divisors = dict(zip(names, tf.unstack(known["divisors"], len(names))))
        else:
            divisors = dict(zip(names, sum_over_replicas([counted[name] for name in names])))
        return self._gradients(batch, divisors | surveyed)

    def _count_replica(self, batch):
        counted = self.model.loss_divisors(*keras.utils.unpack_x_y_sample_weight(batch))
        return sum_over_replicas([tf.stack([counted[name] for name in sorted(counted)])])[0]

    def _survey_replica(self, batch):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        found = self.model.survey(x)
        if self.strategy is None:
            return found
        context = tf.distribute.get_replica_context()
        return {name: context.all_gather(value, axis=0) for name, value in found.items()}

    def _add_replica(self, batch, known):
        for total, gradient in zip(self._sums, self._gradients_of(batch, known)):
            if gradient is not None:
                total.assign_add(tf.convert_to_tensor(gradient))

    def _update_replica(self, batch, known):
        gradients = self._gradients_of(batch, known)
        if self._sums:
            gradients = [
                None if gradient is None else total + gradient for total, gradient in zip(self._sums, gradients)
            ]
            with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
                for total in self._sums:
                    total.assign(tf.zeros_like(total))
        with fusing(), warnings.catch_warnings():
            # What no task trains, such as a pooler without pairs, stays as it is: Keras warns of it.
            warnings.filterwarnings("ignore", "Gradients do not exist")
            self.model.optimizer.apply(gradients, self.model.trainable_variables)

    def _evaluate_replica(self, batch):
        self.model.compute_metrics(batch, None, self.model(batch, training=False))


def _local_zeros(variable: keras.Variable) -> tf.Variable:
    return tf.Variable(
        tf.zeros(variable.shape, variable.dtype), trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM,
    )  # fmt: skip
