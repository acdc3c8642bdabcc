import numpy as np

from albert_tf.checkpoints.variables import Model, changed, encoder_of


def for_long_rows(model: Model, count: int = 0, attention_window: int = 0, global_attention_every: int = 0) -> Model:
    """Returns a new uncompiled model for rows of up to `count` tokens, to be trained further.

    New learned positions repeat the old ones (Longformer, arXiv:2004.05150, section 5). Rotary positions are
    unchanged. An argument of 0 keeps what it sets.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16, max_position_embeddings=6)
    >>> for_long_rows(AlbertEncoder(config), 14).config.max_seq_length
    14
    """
    config = encoder_of(model).config
    count = count or config.max_seq_length
    windows = {"attention_window": attention_window, "global_attention_every": global_attention_every}
    changes = {name: value for name, value in windows.items() if value}
    longer = config.replace(max_position_embeddings=count + config.position_offset, **changes)

    def repeated(name: str, value: np.ndarray, shape: tuple) -> np.ndarray:
        if name != "embeddings/position_embeddings":
            return value
        before, learned = np.split(value, [config.position_offset])
        return np.concatenate([before, learned[np.arange(count) % len(learned)]])

    return model if longer == config else changed(model, longer, repeated)
