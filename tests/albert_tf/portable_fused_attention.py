"""Run under KERAS_BACKEND=jax by test_fused_attention: losses of a few updates, without and with one kernel."""

import sys
from pathlib import Path

import keras
import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier
from albert_tf.optimizers import create_optimizer
from albert_tf.training.devices import Devices
from albert_tf.training.jax_steps import JaxSteps

folder = Path(sys.argv[1])
features = dict(np.load(folder / "features.npz"))
config = AlbertConfig.named("albert_tiny").replace(
    vocab_size=50, hidden_size=32, num_attention_heads=4, embedding_size=16, intermediate_size=64,
    num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
calls, original = [], keras.ops.dot_product_attention
keras.ops.dot_product_attention = lambda *args, **kwargs: calls.append(1) or original(*args, **kwargs)
found, counts = {}, []
for name, fuses in {"plain": False, "fused": True}.items():
    keras.utils.set_random_seed(0)
    model = AlbertClassifier(AlbertEncoder(config, seed=1), num_classes=3, dropout=0.0)
    model.compile(
        optimizer=create_optimizer("adamw", 0.001, 100, 1),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batch = ({key: keras.ops.convert_to_tensor(value) for key, value in features.items()}, np.arange(3))
    model(batch[0])
    model.optimizer.build(model.trainable_variables)
    steps, found[name] = JaxSteps(model, Devices(), fuses=fuses), []
    for _ in range(8):
        steps.train(batch)
        found[name].append(steps.results()["loss"])
    counts.append(len(calls))
np.savez(folder / "found.npz", calls=counts, **found)
