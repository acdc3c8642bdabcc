"""What test_learned_exit.py computes under two Keras backends; run as `python portable_exits.py OUTPUT.npz`."""

import sys

import keras
import numpy as np

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, LearnedExit

CONFIG = AlbertConfig(
    vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16, initializer_range=0.2,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(5, 50, (6, 9)).astype("int32")
FEATURES = {"input_ids": IDS, "input_mask": (np.arange(9) < np.array([[9], [3], [5], [9], [1], [7]])).astype("int32")}
LABELS = np.array([0, 1, 2, 3, 1, 0])


def fill(model: keras.Model) -> keras.Model:
    """Gives every weight the same value under every backend."""
    random = np.random.default_rng(1)
    model.set_weights([random.normal(scale=0.3, size=np.shape(weight)) for weight in model.get_weights()])
    return model


def compute() -> dict[str, np.ndarray]:
    """Weights and losses of two steps, whose difference is the gradient, and who leaves when."""
    model = fill(AlbertClassifier(AlbertEncoder(CONFIG), 4, 0.0, LearnedExit(0.2, 0.7)))
    model.compile(keras.optimizers.SGD(0.1))
    results = {f"loss {step}": np.asarray(model.train_on_batch(FEATURES, LABELS)[0]) for step in range(2)}
    results |= {str(i): weight for i, weight in enumerate(model.get_weights())}
    results["p"] = keras.ops.convert_to_numpy(model.exit_probabilities(FEATURES))
    for rule, threshold in {"confidence": 0.7, "patience": 1, "learned": 0.5, "movement": 0.7}.items():
        answers = model.answer_early(FEATURES, threshold, rule)
        results |= {f"{rule} {name}": keras.ops.convert_to_numpy(value) for name, value in answers.items()}
    return results


if __name__ == "__main__":
    np.savez(sys.argv[1], **compute())
    print("backend:", keras.backend.backend())
