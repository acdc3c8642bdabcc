"""Variable names common to all checkpoint formats, and the assignment of values."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import keras
import numpy as np
from absl import logging

from albert_tf.base.model import has_adapters
from albert_tf.checkpoints.untrusted import check_claims
from albert_tf.config import AlbertConfig
from albert_tf.config.registry import REGISTRY
from albert_tf.families import Source
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.base import variables_of
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.span_predictor import AlbertSpanPredictor
from tfrecords.base.errors import UserError

Model = TypeVar("Model", bound=keras.Model)

# XLNet's embedding vector and attention weights outside dense layers.
MASK_EMBEDDING = "mask_embedding"
TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")
# Variables that only a checkpoint or only a model may have: nothing else may differ.
OPTIONAL = (
    *("pooler/", "pooler_norm/", "masked_lm/", "pair/", "classifier/", "exit_", "span/"),
    "detector/",
    *("start/", "end_hidden/", "end_norm/", "end/", "answer_hidden/", "answer/"),
)
# Task heads: without values in the checkpoint they keep their initial ones.
FRESH = OPTIONAL[4:]


def layer_sources(layers: Mapping[str, str], form: str = "{layer}/{part}", **parts: str) -> dict[str, Source]:
    """Maps this package's variable names to a checkpoint's; `layers` maps the layer names.

    Layers with names ending in "norm" have gamma and beta, others kernel and bias. `form` joins layer and part; `parts`
    renames kernel, bias, gamma and beta. Kernels are transposed if `parts` renames them.
    """
    sources = {}
    for ours, theirs in layers.items():
        for part in ("gamma", "beta") if ours.endswith("norm") else ("kernel", "bias"):
            name = form.format(layer=theirs, part=parts.get(part, part))
            sources[f"{ours}/{part}"] = Source(name, transposed=part == "kernel" and part in parts)
    return sources


def encoder_of(model: keras.Model) -> AlbertEncoder:
    """Returns a model's encoder, or the model itself if it is one."""
    return model if isinstance(model, AlbertEncoder) else model.encoder


def with_config(model: Model, config: AlbertConfig) -> Model:
    """Returns a new model of the same class, with another encoder configuration and initial weights."""
    encoder = encoder_of(model)
    own = encoder.get_config() | {"config": config.to_dict()}
    if any(entry.walk == encoder.walk for entry in REGISTRY.values()) or any(one.walk for one in config.extensions):
        own["walk"] = "unrolled"
    changed = AlbertEncoder.from_config(own)
    if model is encoder:
        return changed
    return type(model).from_config(model.get_config() | {"encoder": keras.saving.serialize_keras_object(changed)})


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables of a model by this package's names; raises UserError for LoRA adapters."""
    encoder = encoder_of(model)
    if has_adapters(model):
        raise UserError("the model has LoRA adapters; call merge_lora() of its encoder first")
    embeddings = encoder.embeddings
    tables = {f"embeddings/{name}": getattr(embeddings, name, None) for name in (*TABLES, MASK_EMBEDDING)}
    variables = {name: table for name, table in tables.items() if table is not None}
    parts = {
        "embeddings/layer_norm": embeddings.layer_norm,
        "final_norm": encoder.final_norm,
        "pooler": encoder.pooler,
        "pooler_norm": encoder.pooler_norm,
        "embeddings/projection": embeddings.projection,
    }
    layers = {name: layer for name, layer in parts.items() if layer is not None}
    for kind in ("attention", "feed_forward"):
        for i, half in enumerate(encoder.halves_of(kind)):
            layers |= {f"{kind}_{i}/{name}": half.product(name) for name in half.names}
            layers[f"{kind}_{i}/layer_norm"] = half.layer_norm
            for extension, holder, weights in half.own_extension_weights():
                if extension.published:
                    prefix = "/".join(filter(None, (f"{kind}_{i}", holder.layer)))
                    variables |= {f"{prefix}/{name}": weight for name, weight in weights.items()}
    for extension, holder, weights in encoder.own_extension_weights():
        if extension.published:
            variables |= {f"{holder.layer}/{name}": weight for name, weight in weights.items()}
    for prefix, layer in layers.items():
        variables |= variables_of(prefix, layer)
    variables |= encoder.depth_variables
    return variables if model is encoder else variables | model.head_variables()


def changed(model: Model, config: AlbertConfig, change: Callable[[str, np.ndarray, tuple], Any]) -> Model:
    """Returns a new model with the configuration `config`, whose variables are change(name, former value, shape)."""
    other, before = with_config(model, config), named_variables(model)
    for name, variable in named_variables(other).items():
        variable.assign(change(name, keras.ops.convert_to_numpy(before[name]), tuple(variable.shape)))
    return other


def unpublished(config: AlbertConfig) -> list[str]:
    """Returns the keys that are set in a configuration and that not every published model has."""
    names = [*["position_offset"] * bool(config.position_offset), *config.unpublished]
    # A random depth is of training alone.
    first = [REGISTRY[one.name].keys[0] for one in config.extensions if one.published and one.name != "random_depth"]
    return list(dict.fromkeys([*names, *first]))


def check_published(config: AlbertConfig, where: str, known: Iterable[str] = ()) -> None:
    """Raises UserError if the format `where` cannot hold a configuration; `known` are other keys that it can hold."""
    if names := [name for name in unpublished(config) if name not in known]:
        values = ", ".join(f"{name} {getattr(config, name)!r}" for name in names)
        raise UserError(f"{where} cannot hold a model with {values}; keep it as a .keras file")


def fill(model: keras.Model, sources: Mapping[str, Source], tensors: Mapping[str, np.ndarray], where: str) -> None:
    """Sets all of `named_variables(model)` from a checkpoint's `tensors`.

    If any are missing, unknown or of another shape, raises UserError and changes nothing. `sources` maps this package's
    names to the checkpoint's. A head that only the model or the checkpoint has causes a warning.
    """
    variables = named_variables(model)
    fresh = [name for name in variables if name.startswith(FRESH)]
    if any(name in sources and sources[name].name in tensors for name in fresh):
        fresh = []
    # Unpublished features begin without effect.
    fresh += [name for name in encoder_of(model).depth_variables if name not in sources]
    if encoder_of(model).config.depth_plan:
        sources = {name: _or_first_block(name, source, sources, tensors) for name, source in sources.items()}
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


def _or_first_block(name: str, source: Source, sources: Mapping[str, Source], tensors: Mapping) -> Source:
    half, _, rest = name.partition("/")
    first = f"{half.rstrip('0123456789')}0/{rest}"
    return source if source.name in tensors else sources.get(first, source)


def _read(tensor: np.ndarray, source: Source) -> np.ndarray:
    number, count = source.part
    if count > 1 and len(tensor) % count == 0:
        tensor = np.split(tensor, count)[number]
    if source.shape and tensor.shape == source.shape:
        # Attention's kernels have an axis for heads, and vectors of a model axes of 1.
        tensor = tensor.reshape((len(tensor), -1) if len(tensor) > 1 else -1)
    return tensor.T if source.transposed else tensor


def _difference(source: Source, tensors: Mapping[str, np.ndarray], variable: keras.Variable) -> str:
    first, *others = tuple(variable.shape)[::-1] if source.transposed else tuple(variable.shape)
    expected = (first * source.part[1], *others)
    return f"{source.name} {tensors[source.name].shape}, expected {expected}"


def extract(model: keras.Model, sources: Mapping[str, Source]) -> dict[str, np.ndarray]:
    """Returns the values of `named_variables(model)` by the checkpoint's names; the inverse of `fill`."""
    variables = named_variables(model)
    without_source = [name for name in variables if name not in sources]
    exits = [name for name in without_source if name.startswith("exit_")]
    if exits:
        logging.warning("left out, the target format has no place for them: %s", ", ".join(exits))
        variables = {name: value for name, value in variables.items() if name not in exits}
        without_source = [name for name in without_source if name not in exits]
    if without_source:
        raise UserError(f"the target format has no place for {', '.join(without_source)}")
    parts = dict[str, dict[int, np.ndarray]]()
    for name, variable in variables.items():
        source, value = sources[name], keras.ops.convert_to_numpy(variable)
        value = value.T if source.transposed else value
        own = parts.setdefault(source.name, {})
        if source.part[0] in own:
            raise UserError(f"the target format has one place for {name} and another layer: {source.name}")
        own[source.part[0]] = value.reshape(source.shape or value.shape)
    joined = {name: [own[number] for number in sorted(own)] for name, own in parts.items()}
    return {name: np.ascontiguousarray(np.concatenate(own) if own[1:] else own[0]) for name, own in joined.items()}


def mentions(names: Iterable[str], part: str) -> bool:
    """Returns whether any name contains `part`."""
    return any(part in name for name in names)


def build_model(
    config: AlbertConfig,
    sources: Mapping[str, Source],
    tensors: Mapping,
    pair_task: str,
    architecture: str = "",
    where: str | os.PathLike = "checkpoint",
) -> keras.Model:
    """Builds a model for a checkpoint: an encoder, with the head whose tensors exist.

    `architecture`, the class name in transformers, tells the task of the head "classifier".
    """

    def has(name: str) -> bool:
        return name in sources and sources[name].name in tensors

    check_claims(config.to_dict(), sum(tensor.size for tensor in tensors.values()), where)
    has_words = has("masked_lm/output_bias") or has("masked_lm/decoder")
    # A tied decoder without a bias has no tensor.
    has_words |= not config.word_transform and "ForMaskedLM" in architecture
    # A layer of some heads for words has the name of the others' pooler.
    is_of_words = has_words and sources.get("pooler/kernel") == sources.get("masked_lm/dense/kernel")
    encoder = AlbertEncoder(config, pooler=has("pooler/kernel") and not is_of_words)
    if has_words and config.position_type == "relative":
        return XlnetPretrainer(encoder)
    if has_words:
        return AlbertPretrainer(encoder, pair_task=pair_task if has("pair/kernel") else None)
    is_named_so = sources.get("span/kernel") != sources.get("classifier/kernel") or "QuestionAnswering" in architecture
    if (has("span/kernel") and is_named_so) or has("start/kernel"):
        return AlbertSpanPredictor(encoder, joint=has("start/kernel"))
    # A class without heads reads none, as where a file has weights of tokens beside an encoder.
    if not has("classifier/kernel") or (architecture.endswith("Model") and not has("pooler/kernel")):
        return encoder
    # Also for a damaged kernel: `fill` then reports it.
    classes = max((1, *tensors[sources["classifier/kernel"].name].shape[:1]))
    if "ForTokenClassification" in architecture or not (architecture or has("pooler/kernel")):
        return AlbertTokenClassifier(encoder, classes)
    if architecture.endswith("ForMultipleChoice"):
        return AlbertMultipleChoice(encoder)
    return AlbertRegressor(encoder) if classes == 1 else AlbertClassifier(encoder, classes)
