"""One name for every variable of a model, whatever file it came from; and the careful hand-over of values."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.layers.base_model import has_adapters, is_quantized
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.base import variables_of
from tfrecords.base.errors import UserError

# What a checkpoint may have and a model not, and the other way round: nothing else may differ.
OPTIONAL = ("pooler/", "masked_lm/", "pair/", "classifier/", "exit_", "span/")
OPTIONAL += ("start/", "end_hidden/", "end_norm/", "end/", "answer_hidden/", "answer/")
# Heads made for one task: a model whose checkpoint has nothing of its head keeps the values it was initialised with.
FRESH = OPTIONAL[3:]


class Source(NamedTuple):
    """Where a value lies in a foreign checkpoint, and whether as the transpose of ours."""

    name: str
    transposed: bool = False


def encoder_of(model) -> AlbertEncoder:
    return model if isinstance(model, AlbertEncoder) else model.encoder


def named_variables(model) -> dict[str, keras.Variable]:
    """The variables of an encoder, and of the heads on it, by their names here.

    Raises:
        UserError: not all are plain weights, since the model was quantized or has LoRA adapters.
    """
    encoder = encoder_of(model)
    if is_quantized(model):
        raise UserError("the model's kernels are rounded by quantize('int8'); take the model as it was before")
    if has_adapters(model):
        raise UserError("the model has LoRA adapters; call merge_lora() of its encoder first")
    embeddings = encoder.embeddings
    tables = ("word_embeddings", "token_type_embeddings", "position_embeddings")
    variables = {f"embeddings/{name}": getattr(embeddings, name) for name in tables}
    layers = {"embeddings/layer_norm": embeddings.layer_norm}
    if encoder.pooler is not None:
        layers["pooler"] = encoder.pooler
    if embeddings.projection is not None:
        layers["embeddings/projection"] = embeddings.projection
    for i, attention in enumerate(encoder.attentions):
        for name in ("query", "key", "value", "output_dense", "layer_norm"):
            layers[f"attention_{i}/{name.removesuffix('_dense')}"] = getattr(attention, name)
    for i, feed_forward in enumerate(encoder.feed_forwards):
        for name in ("intermediate", "output_dense", "layer_norm"):
            layers[f"feed_forward_{i}/{name.removesuffix('_dense')}"] = getattr(feed_forward, name)
    for prefix, layer in layers.items():
        variables |= variables_of(prefix, layer)
    return variables if model is encoder else variables | model.head_variables()


def fill(model, sources: Mapping[str, Source], tensors: Mapping[str, np.ndarray], where: str) -> None:
    """Sets every variable of `model` (see `named_variables`) from `tensors`; all of them, or none.

    Args:
        sources: our names to the checkpoint's.
        tensors: all that the checkpoint holds, beyond what no model keeps (optimizer slots, step counters).
        where: named in errors.

    Raises:
        UserError: tensors are missing, of another shape, or of no known name; all are listed. Heads that only the
            checkpoint has, and heads for a task that only the model has, are listed in a warning instead.
    """
    variables = named_variables(model)
    fresh = [name for name in variables if name.startswith(FRESH)]
    if any(name in sources and sources[name].name in tensors for name in fresh):
        fresh = []
    wanted = {name: sources.get(name, Source(name)) for name in variables if name not in fresh}
    missing = [source.name for source in wanted.values() if source.name not in tensors]
    values = {name: _read(tensors[source.name], source) for name, source in wanted.items() if source.name in tensors}
    wrong = [_difference(wanted[n], tensors, variables[n]) for n, v in values.items() if v.shape != variables[n].shape]
    optional = {source.name for name, source in sources.items() if name.startswith(OPTIONAL)}
    extra = sorted(tensors.keys() - {source.name for source in wanted.values()})
    unknown = [name for name in extra if name not in optional]
    complaints = [("missing", missing), ("of another shape", wrong), ("not part of this model", unknown)]
    if any(names for _, names in complaints):
        lists = "; ".join(f"{what}: {', '.join(names)}" for what, names in complaints if names)
        raise UserError(f"'{where}' does not fit the model; {lists}")
    if extra:
        logging.warning("not loaded from '%s', the model has no such head: %s", where, ", ".join(extra))
    if fresh:
        logging.warning("not in '%s', keeping initial values: %s", where, ", ".join(fresh))
    for name, value in values.items():
        variables[name].assign(value)


def _read(tensor, source):
    return tensor.T if source.transposed else tensor


def _difference(source, tensors, variable):
    expected = tuple(variable.shape)[::-1] if source.transposed else tuple(variable.shape)
    return f"{source.name} {tensors[source.name].shape}, expected {expected}"


def extract(model, sources: Mapping[str, Source]) -> dict[str, np.ndarray]:
    """The values of `named_variables(model)` under the checkpoint's names; the inverse of `fill`.

    Heads of earlier steps are left out, with a warning, where the format knows only the last step's.

    Raises:
        UserError: the checkpoint's format has no place for some of them.
    """
    variables = named_variables(model)
    homeless = [name for name in variables if name not in sources]
    exits = [name for name in homeless if name.startswith("exit_")]
    if exits:
        logging.warning("left out, the target format has one head: %s", ", ".join(exits))
        variables = {name: value for name, value in variables.items() if name not in exits}
        homeless = [name for name in homeless if name not in exits]
    if homeless:
        raise UserError(f"the target format has no place for {', '.join(homeless)}")
    numpy = {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}
    return {sources[name].name: np.ascontiguousarray(_read(value, sources[name])) for name, value in numpy.items()}


def mentions(names: Iterable[str], part: str) -> bool:
    return any(part in name for name in names)
