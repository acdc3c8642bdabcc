"""What test_any_depth.py computes under two Keras backends; run as `python portable_random_depth.py OUTPUT.npz`."""

import sys

import keras
import numpy as np

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder

CONFIG = AlbertConfig(
    vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, initializer_range=0.2, depth_plan="1+1x4+1", random_depth_min=3,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(5, 50, (6, 9)).astype("int32")
LABELS = np.array([0, 1, 2, 3, 1, 0])
WALKS = ("unrolled", "loop", "recompute")


def make(walk: str, config: AlbertConfig = CONFIG) -> AlbertClassifier:
    """Gives every weight the same value under every backend."""
    model = AlbertClassifier(AlbertEncoder(config, walk=walk, seed=3), 4, 0.0)
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.3, size=variable.shape))
    return model


def fixed(repeats: int) -> list[np.ndarray]:
    """Weights after one step of the model whose middle is run so often, always."""
    config = CONFIG.replace(depth_plan=f"1+1x{repeats}+1", num_hidden_layers=repeats + 2, random_depth_min=0)
    model = make("unrolled", config)
    model.compile(keras.optimizers.SGD(0.1))
    model.train_on_batch({"input_ids": IDS}, LABELS)
    return model.get_weights()


def draws() -> list[int]:
    """What twenty batches draw."""
    encoder = AlbertEncoder(CONFIG, seed=3)
    return [int(encoder.depth_draw(encoder.seed_generator.next())) for _ in range(20)]


def compute(walk: str) -> dict[str, np.ndarray]:
    """By depth, every weight after the first of a model's steps that draws it."""
    model = make(walk)
    model.compile(keras.optimizers.SGD(0.1))
    weights = [np.asarray(variable) for variable in model.trainable_variables]
    found = {}
    for _ in range(12):
        for variable, value in zip(model.trainable_variables, weights):
            variable.assign(value)
        repeats = int(model.encoder.depth_draw(model.encoder.seed_generator.state.value))
        model.train_on_batch({"input_ids": IDS}, LABELS)
        if f"{repeats} 0" not in found:
            found |= {f"{repeats} {i}": np.asarray(value) for i, value in enumerate(model.trainable_variables)}
    return found


if __name__ == "__main__":
    found = {f"{walk} {name}": value for walk in WALKS for name, value in compute(walk).items()}
    np.savez(sys.argv[1], draws=draws(), **found)
    print("backend:", keras.backend.backend())
