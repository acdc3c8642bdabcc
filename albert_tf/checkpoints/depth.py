"""The same weights run through another number of layers."""

from typing import TypeVar

import keras
from keras import ops

from albert_tf.checkpoints.variables import encoder_of, named_variables
from albert_tf.layers import depth as plans
from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.base.errors import UserError

Model = TypeVar("Model", bound=keras.Model)


def at_depth(model: Model, depth: int) -> Model:
    """Makes the model that runs a model's blocks through `depth` layers, as one built with so many would.

    Blocks that repeat do so more or less often. What belongs to one step (a head to exit by, a signal) stays with it:
    a lower depth leaves out the repetition's last steps; a higher one is refused where its new steps would have none.

    Args:
        model: an AlbertEncoder, or any model here.
        depth: its `num_hidden_layers`.

    Returns:
        A model with weights of its own, not compiled; the model itself where it is as deep already.

    Raises:
        UserError: the plan has no such depth, or its new steps would lack weights.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=4,
    ...                       num_attention_heads=2, intermediate_size=16)
    >>> at_depth(AlbertEncoder(config), 9).config.num_steps
    9
    """
    encoder = encoder_of(model)
    config = plans.at_depth(encoder.config, depth)
    if config is encoder.config:
        return model
    steps, kept = encoder.config.num_steps, plans.kept_steps(encoder.config, depth)
    values = {name: ops.convert_to_numpy(value) for name, value in named_variables(model).items()}
    # The head of the last step is not named as the others are.
    heads = [f"exit_{step}" for step in range(steps - 1)] + ["classifier"]
    other = _with_config(model, encoder, config.to_dict())
    for name, variable in named_variables(other).items():
        layer, _, part = name.rpartition("/")
        if layer in heads and len(getattr(model, "exit_heads", [])) > 1:
            step = config.num_steps - 1 if layer == "classifier" else heads.index(layer)
            value = values.get(f"{heads[kept[step]]}/{part}") if step < len(kept) else None
        else:
            value = values.get(name)
            if value is not None and value.shape != variable.shape and len(value) == steps >= len(variable):
                value = value[kept]
        if value is None or value.shape != tuple(variable.shape):
            raise UserError(
                f"depth {depth} cannot be run: the model's {steps} steps have weights of their own ({layer}), and there"
                " are none for more steps"
            )
        variable.assign(value)
    return other


def _with_config(model: Model, encoder: AlbertEncoder, config: dict) -> Model:
    """A new model that differs in its encoder's configuration."""
    changed = AlbertEncoder.from_config(encoder.get_config() | {"config": config})
    if model is encoder:
        return changed
    return type(model).from_config(model.get_config() | {"encoder": keras.saving.serialize_keras_object(changed)})
