"""`model.fit` with the library's optimizers on a plain Keras model with a table of embeddings, on any backend.

As a program: `python portable_fit.py OUT.npz` writes the weights that each way of using them ends with.
"""

import sys
from collections.abc import Container

import numpy as np

# Rows are looked up several times in a batch, and gradients are longer than what they are cut to.
WAYS = {
    "plain": {},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipnorm": {"clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.01},
    "accumulating": {"gradient_accumulation_steps": 2},
    "accumulating and clipped": {"gradient_accumulation_steps": 2, "global_clipnorm": 0.1},
    "scaled": {"loss_scale_factor": 8.0},
    "scaled and clipped": {"loss_scale_factor": 8.0, "global_clipnorm": 0.1},
    "averaged": {"use_ema": True},
}


def fit(optimizer, batches: int = 8, loss_scaling: bool = False, run_eagerly: bool = False) -> list[np.ndarray]:
    """The weights after an epoch."""
    import keras

    random = np.random.default_rng(0)
    ids = random.integers(0, 5, (batches * 4, 6))
    targets = random.normal(size=(batches * 4, 1)).astype("float32")
    table = keras.layers.Embedding(5, 4)
    model = keras.Sequential([table, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    model.build((None, 6))
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if loss_scaling else optimizer
    model.compile(optimizer, loss="mse", run_eagerly=run_eagerly)
    model.fit(ids, targets, batch_size=4, shuffle=False, verbose=0)
    return model.get_weights()


def compute(in_graphs: Container[str] = (*WAYS, "adamw")) -> dict[str, np.ndarray]:
    """The weights of every way; those named are fitted in graphs."""
    from albert_tf.optimizers import AdamWeightDecay, Lamb

    runs = {
        name: fit(Lamb(learning_rate=0.01, **options), run_eagerly=name not in in_graphs)
        for name, options in WAYS.items()
    }
    runs["adamw"] = fit(AdamWeightDecay(learning_rate=0.01), run_eagerly="adamw" not in in_graphs)
    runs["loss scaling"] = fit(Lamb(learning_rate=0.01, global_clipnorm=0.1), loss_scaling=True)
    return {f"{name} {number}": weight for name, weights in runs.items() for number, weight in enumerate(weights)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **compute())
