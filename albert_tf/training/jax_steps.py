import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np

from albert_tf.layers.fused_attention import fused_attention
from albert_tf.models.whole_batch import part_of
from albert_tf.training.devices import Devices
from albert_tf.training.steps import Steps

# Batches that are transferred to the device while it computes.
_AHEAD = 2


class JaxSteps(Steps):
    """Training and evaluation steps under JAX; the model's variables are outdated until `sync`."""

    def __init__(self, model: keras.Model, devices: Devices, parts: int = 1, fuses: bool = False):
        super().__init__(model, devices, parts, surveys=parts > 1)
        self.fuses = fuses
        distribution = keras.distribution.distribution()
        self._everywhere = None
        if distribution is not None:
            mesh = distribution.device_mesh.backend_mesh
            self._everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        options = {} if self._everywhere is None else {"out_shardings": self._everywhere}
        self._add = jax.jit(self._add_part, donate_argnums=(0, 1), **options)
        self._update = jax.jit(self._update_model, donate_argnums=(0, 1), **options)
        self._evaluate = jax.jit(self._metrics_of, **options)
        self._count, self._survey = jax.jit(self._divisors_of, **options), jax.jit(self._surveyed, **options)
        self._state: Any = None
        self._sums: Any = None

    def batches(self, make_dataset: Callable[[int, int, int], Any], training: bool = False):
        """Returns a function that iterates over this process's share of training batches, or all evaluation batches."""
        shares = (1, self.devices.processes, self.devices.process) if training else (1, 1, 0)
        dataset = make_dataset(*shares)

        def iterate() -> Iterator[Any]:
            placed = collections.deque()
            for batch in dataset.as_numpy_iterator():
                placed.append(keras.tree.map_structure(lambda value: self._placed(value, training), batch))
                if len(placed) > _AHEAD:
                    yield placed.popleft()
            yield from placed

        return iterate

    def train(self, *parts: Any) -> None:
        if self._state is None:
            self._state = [[variable.value for variable in group] for group in self._groups()]
        if self._sums is None and self.parts > 1:
            self._sums = [keras.ops.zeros_like(variable) for variable in self._state[0]]
        whole, first_row = self._whole(parts) if len(parts) > 1 else {}, 0
        for number, part in enumerate(parts, 1):
            if self._surveys:
                whole["first_row"] = first_row
                first_row += self.shape(part)[0]
            step = self._add if number < len(parts) else self._update
            self._state, self._sums = step(self._state, self._sums, part, whole)

    def _whole(self, parts: tuple) -> dict[str, Any]:
        counted = [self._count(part) for part in parts]
        whole = {name: sum(one[name] for one in counted) for name in counted[0]}
        if self._surveys:
            found, (trainable, others, *_) = [], self._state
            for part in parts:
                # The dropout masks are those that the steps draw afterwards: the state here stays as it is.
                vectors, others = self._survey(trainable, others, part)
                found.append(vectors)
            whole |= {name: keras.ops.concatenate([one[name] for one in found], axis=0) for name in found[0]}
        return whole

    def _divisors_of(self, batch):
        return self.model.loss_divisors(*keras.utils.unpack_x_y_sample_weight(batch))

    def _surveyed(self, trainable, others, batch):
        model = self.model
        groups = zip((model.trainable_variables, model.non_trainable_variables), (trainable, others))
        mapping = [pair for variables, values in groups for pair in zip(variables, values)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            found = model.survey(keras.utils.unpack_x_y_sample_weight(batch)[0])
        return found, [scope.get_current_value(variable) for variable in model.non_trainable_variables]

    def evaluate(self, batch: dict[str, Any]) -> None:
        self.sync()
        trainable, others, _, metrics = ([variable.value for variable in group] for group in self._groups())
        for variable, value in zip(self.model.metrics_variables, self._evaluate(trainable, others, metrics, batch)):
            variable.assign(value)

    def shape(self, batch: Any) -> tuple[int, int]:
        ids = keras.utils.unpack_x_y_sample_weight(batch)[0]["input_ids"]
        return ids.size // ids.shape[-1], ids.shape[-1]

    def sync(self) -> None:
        if self._state is not None:
            for group, values in zip(self._groups(), self._state):
                for variable, value in zip(group, values):
                    variable.assign(value)
        self._state = None

    def _groups(self):
        model = self.model
        own = model.trainable_variables, model.non_trainable_variables
        return *own, model.optimizer.variables, model.metrics_variables

    def _add_part(self, state, sums, batch, whole):
        trainable, others, optimizer, metrics = state

        def loss_of(trainable):
            return self._forward(trainable, others, metrics, batch, training=True, whole=whole)

        (_, (others, metrics)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        if sums is not None:
            gradients = [total + gradient for total, gradient in zip(sums, gradients)]
        return [trainable, others, optimizer, metrics], gradients

    def _update_model(self, state, sums, batch, whole):
        (trainable, others, optimizer, metrics), gradients = self._add_part(state, sums, batch, whole)
        trainable, optimizer = self.model.optimizer.stateless_apply(optimizer, gradients, trainable)
        sums = None if sums is None else [keras.ops.zeros_like(total) for total in sums]
        return [trainable, others, optimizer, metrics], sums

    def _metrics_of(self, trainable, others, metrics, batch):
        return self._forward(trainable, others, metrics, batch, training=False)[1][1]

    def _forward(self, trainable, others, metrics, batch, training: bool, whole: dict[str, Any] | None = None):
        model = self.model
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        variables = (model.trainable_variables, model.non_trainable_variables, model.metrics_variables)
        mapping = [
            pair for group, values in zip(variables, (trainable, others, metrics)) for pair in zip(group, values)
        ]
        own = model.loss_divisors(x, y, weight) if whole else {}
        cut = part_of(own, whole) if whole else contextlib.nullcontext()
        scope = keras.StatelessScope(state_mapping=mapping, collect_losses=True)
        with scope, cut, fused_attention(self.fuses):
            predictions = model(x, training=training)
            loss = model.compute_loss(x, y, predictions, weight, training=training)
            if self._loss is not None:
                loss_of_batch = loss * (whole["rows"] / own["rows"]) if whole else loss
                self._loss.update_state(loss_of_batch, x["input_ids"].shape[0])
            model.compute_metrics(x, y, predictions, weight)
        return loss, tuple([scope.get_current_value(variable) for variable in group] for group in variables[1:])

    def _placed(self, value: np.ndarray, is_share: bool):
        if self._everywhere is None:
            return jax.device_put(value)
        rows = jax.sharding.NamedSharding(
            self._everywhere.mesh, jax.sharding.PartitionSpec(self._everywhere.mesh.axis_names)
        )
        if is_share:
            return jax.make_array_from_process_local_data(rows, value)
        # The last batch of an evaluation may have too few rows for all.
        sharding = self._everywhere if len(value) % self.devices.replicas else rows
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
