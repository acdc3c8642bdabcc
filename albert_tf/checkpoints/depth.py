from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
from albert_tf.config import other_depths as plans
from tfrecords.base.errors import UserError


def at_depth(model: Model, depth: int) -> Model:
    """Returns a new uncompiled model that repeats the same blocks over `depth` layers.

    Weights of single steps, such as exit heads, stay with their step.

    Args:
        model: any model or AlbertEncoder.
        depth: the new `num_hidden_layers`; if unchanged, the model itself is returned.

    Raises:
        UserError: the blocks cannot run at this depth, or new steps would lack weights.

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
    kept = plans.kept_steps(encoder.config, depth)
    other = with_config(model, config)
    had, needed = _by_step(model), _by_step(other)
    lacking = [name for name, step in needed if step >= len(kept) or (name, kept[step]) not in had]
    if lacking:
        raise UserError(
            f"depth {depth} cannot be run: the steps of the {encoder.config.num_hidden_layers} layers have weights of"
            f" their own ({lacking[0]}), which do not go over to {depth}"
        )
    named = named_variables(model)
    for name, variable in named_variables(other).items():
        if name in named and named[name].shape == variable.shape:
            variable.assign(ops.convert_to_numpy(named[name]))
    for (name, step), (variable, row) in needed.items():
        source, row_before = had[name, kept[step]]
        values = np.array(ops.convert_to_numpy(variable))
        values[row] = ops.convert_to_numpy(source)[row_before]
        variable.assign(values)
    return other


def _by_step(model: keras.Model) -> dict[tuple[str, int], tuple[keras.Variable, Any]]:
    # (variable, row) of every weight that belongs to a single step, by (name, step).
    encoder, found = encoder_of(model), dict[tuple[str, int], tuple[keras.Variable, Any]]()
    for step, head in enumerate(getattr(model, "exit_heads", [])):
        found |= {(f"exit/{variable.name}", step): (variable, ...) for variable in head.variables}
    for (kind, _), owner in encoder.owners().items():
        steps = (
            getattr(owner, "steps", ()) if kind in ("attention", "feed_forward") else range(encoder.config.num_steps)
        )
        for _, holder, weights in owner.own_extension_weights():
            for name, variable in weights.items():
                if holder.weights[name].per_step:
                    rows = range(len(steps)) if len(steps) > 1 else [...]
                    key = "/".join(filter(None, (kind, holder.layer, name)))
                    found |= {(key, step): (variable, row) for row, step in zip(rows, steps)}
    return found
