"""Run under KERAS_BACKEND=jax by test_electra: a pre-trainer's loss, and that of a few steps of a run's loop."""

import sys
from pathlib import Path

import keras
import numpy as np

import albert_tf  # noqa: F401
from albert_tf.optimizers import create_optimizer
from albert_tf.training.devices import Devices
from albert_tf.training.jax_steps import JaxSteps

folder = Path(sys.argv[1])
features = dict(np.load(folder / "features.npz"))
model = keras.saving.load_model(folder / "model.keras")
loss = model.compute_loss(features, None, model(features))
model.compile(optimizer=create_optimizer("adamw", 0.01, 100, 1))
model.optimizer.build(model.trainable_variables)
steps, losses = JaxSteps(model, Devices()), []
for _ in range(12):
    steps.train({name: keras.ops.convert_to_tensor(value) for name, value in features.items()})
    losses.append(steps.results()["replaced_token_loss"])
np.savez(folder / "found.npz", loss=loss, before=losses[0], after=losses[-1])
