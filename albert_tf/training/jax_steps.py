"""A training and an evaluation step under JAX, on one device or with each batch spread over all of them."""

from collections.abc import Callable
from typing import Any

import jax
import keras


class JaxSteps:
    """As TensorFlowSteps. Between `sync` calls the state is here and the model's variables are out of date."""

    def __init__(self, model: keras.Model):
        self.model = model
        self._train = jax.jit(model.train_step, donate_argnums=0)
        self._evaluate = jax.jit(model.test_step)
        self._state = None

    def batches(self, make_dataset: Callable[[int, int, int], Any]):
        return make_dataset(1, 1, 0).as_numpy_iterator

    def train(self, batch: dict[str, Any]) -> None:
        if self._state is None:
            self._state = tuple([variable.value for variable in group] for group in self._groups())
        _, self._state = self._train(self._state, (_placed(batch),))

    def evaluate(self, batch: dict[str, Any]) -> None:
        self.sync()
        trainable, others, _, metrics = self._groups()
        state = tuple([variable.value for variable in group] for group in (trainable, others, metrics))
        _, state = self._evaluate(state, (_placed(batch),))
        for variable, value in zip(metrics, state[2]):
            variable.assign(value)

    def results(self) -> dict[str, float]:
        self.sync()
        found = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        self.model.reset_metrics()
        return found

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


def _placed(batch):
    distribution = keras.distribution.distribution()
    if distribution is None:
        return batch

    def place(value):
        return jax.device_put(value, distribution.get_data_layout(value.shape).backend_layout)

    return {name: place(value) for name, value in batch.items()}
