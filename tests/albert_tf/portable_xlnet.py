"""Run under KERAS_BACKEND=jax by test_xlnet: a pre-trainer's numbers and the gradient of W_r, in a jitted step."""

import sys
from pathlib import Path

import jax
import keras
import numpy as np

import albert_tf  # noqa: F401

folder = Path(sys.argv[1])
features = {name: jax.numpy.asarray(value) for name, value in np.load(folder / "features.npz").items()}
model = keras.saving.load_model(folder / "model.keras")
trained = [variable.value for variable in model.trainable_variables]
fixed = [variable.value for variable in model.non_trainable_variables]


@jax.jit
def step(trained):
    def loss_of(trained):
        outputs, _ = model.stateless_call(trained, fixed, features, training=True)
        with keras.StatelessScope(zip(model.trainable_variables, trained)):
            return model.compute_loss(features, None, outputs), outputs

    return jax.value_and_grad(loss_of, has_aux=True)(trained)


(_, outputs), gradients = step(trained)
place = next(i for i, variable in enumerate(model.trainable_variables) if variable.path.endswith("relative/kernel"))
np.savez(
    folder / "found.npz",
    logits=outputs["masked_lm_logits"], memory=outputs["memory"], gradient=gradients[place],
)  # fmt: skip
