"""One name for every variable of a model, whatever file it came from; and the careful hand-over of values."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from tfrecords.errors import UserError

HEADS = ("masked_lm/", "pair/")


class Source(NamedTuple):
    """Where a value lies in a foreign checkpoint, and whether as the transpose of ours."""

    name: str
    transposed: bool = False


def encoder_of(model) -> AlbertEncoder:
    return model if isinstance(model, AlbertEncoder) else model.encoder


def named_variables(model) -> dict[str, keras.Variable]:
    """The variables of an encoder, and of a pre-trainer's heads, by their names here.

    A model with other heads gives its encoder's variables only.
    """
    encoder = encoder_of(model)
    embeddings = encoder.embeddings
    variables = {
        f"embeddings/{name}": getattr(embeddings, name)
        for name in ("word_embeddings", "token_type_embeddings", "position_embeddings")
    }
    layers = {"embeddings/layer_norm": embeddings.layer_norm, "pooler": encoder.pooler}
    if embeddings.projection is not None:
        layers["embeddings/projection"] = embeddings.projection
    for i, attention in enumerate(encoder.attentions):
        for name in ("query", "key", "value", "output_dense", "layer_norm"):
            layers[f"attention_{i}/{name.removesuffix('_dense')}"] = getattr(attention, name)
    for i, feed_forward in enumerate(encoder.feed_forwards):
        for name in ("intermediate", "output_dense", "layer_norm"):
            layers[f"feed_forward_{i}/{name.removesuffix('_dense')}"] = getattr(feed_forward, name)
    if isinstance(model, AlbertPretrainer):
        head = model.masked_lm_head
        layers |= {"masked_lm/dense": head.dense, "masked_lm/layer_norm": head.layer_norm}
        variables["masked_lm/output_bias"] = head.output_bias
        if model.pair_head is not None:
            layers["pair"] = model.pair_head
    for prefix, layer in layers.items():
        variables |= {f"{prefix}/{variable.name}": variable for variable in layer.trainable_variables}
    return variables


def build(config: AlbertConfig, has_masked_lm: bool, pair_task: str | None):
    """The smallest model that holds what a checkpoint has: an encoder, or a pre-trainer."""
    encoder = AlbertEncoder(config)
    return AlbertPretrainer(encoder, pair_task=pair_task) if has_masked_lm else encoder


def fill(model, sources: Mapping[str, Source], tensors: Mapping[str, np.ndarray], where: str) -> None:
    """Sets every variable of `model` (see `named_variables`) from `tensors`; all of them, or none.

    Args:
        sources: our names to the checkpoint's.
        tensors: all that the checkpoint holds, beyond what no model keeps (optimizer slots, step counters).
        where: named in errors.

    Raises:
        UserError: tensors are missing, of another shape, or of no known name; all are listed. Tensors of heads that
            `model` has not are listed in a warning instead.
    """
    variables = named_variables(model)
    used = {sources[name].name: name for name in variables if name in sources}
    missing = [sources[name].name if name in sources else name for name in variables]
    missing = [name for name in missing if name not in tensors]
    wrong = []
    values = {}
    for foreign, name in used.items():
        if foreign not in tensors:
            continue
        values[name] = value = tensors[foreign].T if sources[name].transposed else tensors[foreign]
        if tuple(value.shape) != tuple(variables[name].shape):
            expected = tuple(variables[name].shape)[:: -1 if sources[name].transposed else 1]
            wrong.append(f"{foreign} {tuple(tensors[foreign].shape)}, expected {expected}")
    heads = {source.name for name, source in sources.items() if name.startswith(HEADS)}
    extra = [name for name in tensors if name not in used]
    unknown = [name for name in extra if name not in heads]
    complaints = [("missing", missing), ("of another shape", wrong), ("not part of this model", unknown)]
    if any(names for _, names in complaints):
        lists = "; ".join(f"{what}: {', '.join(names)}" for what, names in complaints if names)
        raise UserError(f"'{where}' does not fit the model; {lists}")
    if extra:
        logging.warning("not loaded from '%s', the model has no such head: %s", where, ", ".join(extra))
    for name, value in values.items():
        variables[name].assign(value)


def extract(model, sources: Mapping[str, Source]) -> dict[str, np.ndarray]:
    """The values of `named_variables(model)` under the checkpoint's names; the inverse of `fill`."""
    values = {}
    for name, variable in named_variables(model).items():
        value = keras.ops.convert_to_numpy(variable)
        values[sources[name].name] = np.ascontiguousarray(value.T if sources[name].transposed else value)
    return values


def mentions(names: Iterable[str], part: str) -> bool:
    return any(part in name for name in names)
