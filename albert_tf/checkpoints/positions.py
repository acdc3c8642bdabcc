"""The same weights for rows of another length."""

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
from tfrecords.base.errors import UserError


def with_positions(model: Model, count: int) -> Model:
    """Makes the model that takes rows of up to `count` tokens; to be trained on where that is more than before.

    Learned positions beyond the last are copies of those from the first on, again and again: so near ones stay as they
    were learned (Longformer, Beltagy et al. 2020, section 5). Rotary positions are the same at any length.

    Args:
        model: an AlbertEncoder, or any model here.
        count: tokens of the longest row, 1 or more.

    Returns:
        A model with weights of its own, not compiled; the model itself where it takes such rows already, and no longer.

    Raises:
        UserError: `count` is no such number, or the model has adapters or is quantized.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16, max_position_embeddings=6)
    >>> with_positions(AlbertEncoder(config), 14).config.max_seq_length
    14
    """
    if count < 1:
        raise UserError(f"a row of {count} tokens is none; give 1 or more")
    encoder = encoder_of(model)
    config = encoder.config
    if count == config.max_seq_length:
        return model
    # For what it refuses.
    named_variables(model)
    other = with_config(model, config.replace(max_position_embeddings=count + config.position_offset))
    table = encoder.embeddings.position_embeddings
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        value = np.asarray(ops.convert_to_numpy(ours))
        if ours is table:
            before, learned = np.split(value, [config.position_offset])
            value = np.concatenate([before, learned[np.arange(count) % len(learned)]])
        theirs.assign(value)
    return other
