"""A model of some of a vocabulary's pieces."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
from tfrecords.base.errors import UserError

_BY_PIECE = ("embeddings/word_embeddings", "masked_lm/output_bias")


def keep_pieces(model: Model, kept: Sequence[int]) -> Model:
    """Makes the model that knows some of another's pieces, and gives for texts of these what the other gives.

    Args:
        model: an AlbertEncoder, or any model here.
        kept: the ids that its pieces have there, in the order of the new ones.

    Returns:
        A model with weights of its own, not compiled.

    Raises:
        UserError: there is no piece of such an id.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> encoder = AlbertEncoder(AlbertConfig.named("albert_tiny").replace(vocab_size=20))
    >>> keep_pieces(encoder, [0, 1, 7]).config.vocab_size
    3
    """
    config = encoder_of(model).config
    numbers = np.asarray(kept, np.int64)
    if not len(numbers) or numbers.min() < 0 or numbers.max() >= config.vocab_size:
        raise UserError(f"the pieces to keep must be some of the model's {config.vocab_size}")
    other = with_config(model, config.replace(vocab_size=len(numbers)))
    before = named_variables(model)
    for name, variable in named_variables(other).items():
        value = ops.convert_to_numpy(before[name])
        variable.assign(value[numbers] if name in _BY_PIECE else value)
    return other
