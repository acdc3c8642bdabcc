"""keras-hub's ALBERT of the sizes of a configuration of ours, with random weights, and random rows for it."""

from pathlib import Path

import keras
import numpy as np

from albert_tf import AlbertConfig


def backbone(config: AlbertConfig, **options):
    import keras_hub  # Its import takes seconds.

    return keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size, num_layers=config.num_hidden_layers, num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size, hidden_dim=config.hidden_size, intermediate_dim=config.intermediate_size,
        **options,
    )  # fmt: skip


def export(config: AlbertConfig, folder: Path) -> None:
    """Exports it by its own `export`."""
    names = ("token_ids", "segment_ids", "padding_mask")
    signature = {name: keras.InputSpec(shape=(None, None), dtype="int32", name=name) for name in names}
    backbone(config).export(str(folder), input_signature=[signature], verbose=False)


def masked_rows(vocab_size: int, batch: int, length: int, predictions: int) -> tuple[dict, np.ndarray, np.ndarray]:
    """Inputs of its AlbertMaskedLM, the ids of the masked words [batch, predictions], and their weights."""
    random = np.random.default_rng(0)
    ids = random.integers(5, vocab_size, (batch, length)).astype("int32")
    order = random.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)
    places = np.sort(order[:, :predictions]).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    return inputs | {"mask_positions": places}, np.take_along_axis(ids, places, 1), np.ones(places.shape, "float32")
