"""Checkpoints of HuggingFace transformers, in one file or sharded."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging
from safetensors.numpy import save_file

from albert_tf.checkpoints.sentence_folders import score_activation, written_activation
from albert_tf.checkpoints.tensor_files import read_tensors
from albert_tf.checkpoints.variables import (
    Source,
    build_model,
    check_published,
    encoder_of,
    extract,
    fill,
    unpublished,
)
from albert_tf.config import AlbertConfig
from albert_tf.families import Family, families
from albert_tf.families.table import HEADS, Layer
from albert_tf.layers.depth import plan
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.model_files import weights_file
from albert_tf.models.classifiers import (
    AlbertClassifier,
    AlbertMultipleChoice,
    AlbertRegressor,
    AlbertTokenClassifier,
    ClassesModel,
)
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.span_predictor import AlbertSpanPredictor
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir, read_json, replacing, write_json


def load_huggingface(path: str | os.PathLike, model: keras.Model | None = None) -> keras.Model:
    """Loads a model of any of the `families`, saved by transformers.

    Args:
        path: a folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (needs PyTorch), or such a
            file, or a shard index.
        model: the model or AlbertEncoder to fill. None builds one for the tensors: an AlbertPretrainer, a fine-tuned
            model with its class names, or an AlbertEncoder.

    Raises:
        UserError: files cannot be read, or tensors do not fit (then the model is unchanged).
    """
    path = Path(path)
    file = weights_file(path) if path.is_dir() else path
    tensors = _without_wrapper(read_tensors(file))
    values = read_json(file.parent / "config.json") if model is None else {}
    config = None if model is None else encoder_of(model).config
    family = _family_in(tensors, values.get("model_type") if isinstance(values, dict) else None, config)
    if config is None:
        config = AlbertConfig.from_json(file.parent / "config.json", family.model_types[0])
    prefixes = (family.prefix, *family.other_prefixes)
    prefix = next((one for one in prefixes if any(name.startswith(one) for name in tensors)), "")
    sources = _sources(family, config, prefix)
    of_texts = _sources(family, config, prefix, family.of_texts)
    if any(of_texts[f"{layer}/kernel"].name in tensors for layer in family.of_texts):
        # The head has a layer in place of the pooler, which it does not read.
        unread = {sources[name].name for name in ("pooler/kernel", "pooler/bias") if name in sources}
        unread -= {source.name for source in of_texts.values()}
        tensors, sources = {name: one for name, one in tensors.items() if name not in unread}, of_texts
    _drop_copies(tensors, sources, family, config)
    if family.grouped_heads:
        _repeat_groups(tensors, sources, config)
    if model is None:
        names = values.get("architectures") or [""]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise UserError(f"'{file.parent / 'config.json'}': architectures must be a list of names, not {names!r}")
        model = build_model(config, sources, tensors, family.pair_task, names[0], file)
        if not names[0] and isinstance(model, (AlbertClassifier, AlbertRegressor)):
            logging.warning(
                "'%s' names no architectures; the head is read as %sForSequenceClassification's",
                *(file.parent / "config.json", family.class_name),
            )
        describe(model, values, file.parent)
    fill(model, sources, tensors, str(file))
    _check_activation(model, family, file.parent)
    return model


def save_huggingface(model: keras.Model, directory: str | os.PathLike) -> Path:
    """Writes `config.json` and `model.safetensors` for transformers, in the form of the family that can hold the model.

    That is the one of the families whose form differs least. An ALBERT needs a projection: an identity is added if the
    model has none.

    Raises:
        UserError: transformers cannot hold the model (partly shared blocks, factorization "word", the joint span head,
            a position offset with shared blocks, a RoBERTa with a pair head, a sentence embedder's pooling).
    """
    config = encoder_of(model).config
    family = _family_for(config)
    values = _config_json(model, config, family)
    _check_activation(model, family, directory)
    prefix = "" if isinstance(model, AlbertEncoder) else family.prefix
    # With a pooler of its own the head is for single texts alone.
    choices = () if "pooler" in family.of_texts else (AlbertMultipleChoice,)
    is_of_texts = isinstance(model, (AlbertClassifier, AlbertRegressor, *choices))
    sources = _sources(family, config, prefix, family.of_texts if is_of_texts else {})
    tensors = extract(model, sources)
    if family.needs_projection and not config.is_projected:
        kernel, bias = (sources[f"embeddings/projection/{part}"].name for part in ("kernel", "bias"))
        tensors |= {kernel: np.eye(config.hidden_size, dtype="float32"), bias: np.zeros(config.hidden_size, "float32")}
    if family.grouped_heads:
        values[family.grouped_heads] = _join_groups(tensors, sources, config)
    if "masked_lm/decoder" in sources and (bias := sources["masked_lm/output_bias"].name) in tensors:
        tensors[f"{family.decoder}.bias"] = tensors[bias]
    directory = make_output_dir(directory)
    with replacing(directory / "model.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
    write_json(directory / "config.json", values)
    return directory


def _grouped(tensors: Mapping[str, np.ndarray], sources: Mapping[str, Source]) -> list[str]:
    halves = [(ours.split("/"), source.name) for ours, source in sources.items() if ours.startswith("attention_")]
    return [name for (_, layer, _), name in halves if layer in ("key", "value") and name in tensors]


def _repeat_groups(tensors: dict[str, np.ndarray], sources: Mapping[str, Source], config: AlbertConfig) -> None:
    for name in _grouped(tensors, sources):
        size, rest = config.head_size, tensors[name].shape[1:]
        times, others = divmod(config.hidden_size, max(len(tensors[name]), 1))
        if others == 0 and len(tensors[name]) % size == 0:
            heads = tensors[name].reshape((-1, size, *rest))
            tensors[name] = np.repeat(heads, times, axis=0).reshape((-1, *rest))


def _join_groups(tensors: dict[str, np.ndarray], sources: Mapping[str, Source], config: AlbertConfig) -> int:
    names, count = _grouped(tensors, sources), config.num_attention_heads
    heads = {name: tensors[name].reshape((count, config.head_size, *tensors[name].shape[1:])) for name in names}

    def are_copies(times: int) -> bool:
        return all(np.array_equal(one, np.repeat(one[::times], times, axis=0)) for one in heads.values())

    times = max(one for one in range(1, count + 1) if count % one == 0 and are_copies(one))
    tensors |= {name: np.concatenate(one[::times]) for name, one in heads.items()}
    return count // times


def _family_in(tensors: Iterable[str], model_type: Any, config: AlbertConfig | None) -> Family:
    for family in families():
        if model_type in family.model_types:
            return family

    def likeness(family: Family) -> tuple[int, bool]:
        places = {ours: source.name.format(i=0, group=0, inner=0) for ours, source in _expanded(family.encoder).items()}
        found = {*places.values(), *(source.name for source in _expanded(family.heads).values())}
        count = sum(name in tensors or family.prefix + name in tensors for name in found)
        return count, config is not None and not _differences(family, config)

    return max(families(), key=likeness)


def _differences(family: Family, config: AlbertConfig) -> list[str]:
    wrong = [key for key in family.form if not family.meets(key, config)]
    return wrong + [key for key in unpublished(config) if key not in (*family.form, "tie_word_embeddings")]


def _family_for(config: AlbertConfig) -> Family:
    def nearness(family: Family) -> tuple[bool, int]:
        marker, differences = family.marker, _differences(family, config)
        is_marked = marker in unpublished(config)
        return not is_marked, len(differences)

    family = min(families(), key=nearness)
    check_published(config, "transformers", (*family.form, "tie_word_embeddings"))
    if differences := _differences(family, config):
        words = {"is_plain": "shared blocks or factorised embeddings"}
        found = ", ".join(words.get(key) or f"{key} {getattr(config, key)!r}" for key in differences)
        kind = family.class_name if family.marker else "model"
        raise UserError(f"transformers has no {kind} with {found}; keep it as a .keras file")
    return family


_KINDS = {
    AlbertEncoder: "encoder",
    AlbertClassifier: "texts",
    AlbertRegressor: "texts",
    AlbertTokenClassifier: "tokens",
    AlbertMultipleChoice: "choices",
    AlbertSpanPredictor: "spans",
    AlbertPretrainer: "pretrainer",
    XlnetPretrainer: "words",
}


def _config_json(model: keras.Model, config: AlbertConfig, family: Family) -> dict[str, Any]:
    kind = _KINDS.get(type(model), "")
    if not kind:
        raise UserError(f"transformers has no class for an {type(model).__name__}; give its encoder")
    if kind == "pretrainer" and model.pair_head is None:
        kind = "words"
    kind = "joint_spans" if getattr(model, "joint", False) else kind
    architecture = family.class_name + (HEADS | {**family.classes})[kind]
    values: dict[str, Any] = {"architectures": [architecture], "model_type": family.model_types[0]}
    values |= {"tie_word_embeddings": config.tie_word_embeddings} | _config_values(config, family)
    if isinstance(model, ClassesModel):
        names = model.labels or [f"LABEL_{i}" for i in range(model.num_classes)]
        values["id2label"] = {str(number): name for number, name in enumerate(names)}
        values["label2id"] = {name: number for number, name in enumerate(names)}
    if getattr(model, "multi_label", False):
        values["problem_type"] = "multi_label_classification"
    if isinstance(model, AlbertRegressor):
        values |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} | written_activation(model.activation)
        values |= {"problem_type": "regression"} if model.activation == "linear" else {}
    return values


def _config_values(config: AlbertConfig, family: Family) -> dict[str, Any]:
    fields = {key: key for key in config.to_dict()} if family.keys is None else family.keys
    values = {theirs: getattr(config, ours) for theirs, ours in fields.items() if theirs not in family.unwritten}
    for theirs, ours in fields.items():
        if ours in ("hidden_act", "pooler_act") and theirs in values:
            values[theirs] = {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(values[theirs], values[theirs])
    return values | {key: one(config) if callable(one) else one for key, one in family.written.items()}


def _without_wrapper(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    places = [
        (name.removesuffix(one.word_table), one.prefix)
        for one in families()
        for name in tensors
        if f".{name}".endswith(f".{one.word_table}")
    ]
    before = places[0][0] if places else ""
    own = next((prefix for _, prefix in places if f".{before}".endswith(f".{prefix}")), "")
    wrapper = before.removesuffix(own)
    if not wrapper or not all(name.startswith(wrapper) for name in tensors):
        return tensors
    return {name.removeprefix(wrapper): tensor for name, tensor in tensors.items()}


def _expanded(layers: Mapping[str, Layer]) -> dict[str, Source]:
    found = {}
    for ours, theirs in layers.items():
        if isinstance(theirs, Source):
            found[ours] = theirs
            continue
        name, number, count = (theirs, 0, 1) if isinstance(theirs, str) else theirs
        of_norm = {"gamma": "weight", "scale": "weight", "beta": "bias"}
        for part_here, part_there in (
            of_norm if ours.endswith("norm") else {"kernel": "weight", "bias": "bias"}
        ).items():
            found[f"{ours}/{part_here}"] = Source(f"{name}.{part_there}", part_here == "kernel", (number, count))
    return found


def _sources(family: Family, config: AlbertConfig, prefix: str, others: Mapping[str, Layer] = {}) -> dict[str, Source]:
    heads = _expanded({**family.heads, **others})
    if not config.tie_word_embeddings:
        heads["masked_lm/decoder"] = Source(f"{family.decoder}.weight")
    found = {}
    for ours, source in _expanded(family.encoder).items():
        half, _, rest = ours.partition("/")
        shape = tuple(getattr(config, axis) if isinstance(axis, str) else axis for axis in source.shape)
        numbers = [getattr(step, half) for step in plan(config)] if half in ("attention", "feed_forward") else [None]
        for number in dict.fromkeys(numbers):
            group, inner = divmod(number or 0, config.inner_group_num)
            name = prefix + source.name.format(i=number, group=group, inner=inner)
            found[ours if number is None else f"{half}_{number}/{rest}"] = source._replace(name=name, shape=shape)
    return found | heads


def _check_activation(model: keras.Model, family: Family, folder: str | os.PathLike) -> None:
    hidden_act = encoder_of(model).config.hidden_act
    if isinstance(model, AlbertPretrainer) and family.word_act not in ("", hidden_act):
        logging.warning(
            "'%s': the head for masked words has the activation '%s' here, and the exact gelu in transformers whatever"
            " hidden_act says; its scores differ",
            *(folder, hidden_act),
        )


# Counters and tables that are computed.
_NO_WEIGHTS = (".position_ids", ".token_type_ids", "inv_freq", "cos_cached", "sin_cached")


def _drop_copies(
    tensors: dict[str, np.ndarray], sources: dict[str, Source], family: Family, config: AlbertConfig
) -> None:
    originals = {"weight": "embeddings/word_embeddings", "bias": "masked_lm/output_bias"}
    for part, ours in originals.items():
        name, original = f"{family.decoder}.{part}", sources[ours].name
        is_own = name == original or (part == "weight" and not config.tie_word_embeddings)
        if is_own or name not in tensors:
            continue
        if not config.tie_word_embeddings:
            # Then transformers reads this bias alone.
            tensors[original] = tensors.pop(name)
        elif original not in tensors:
            # A file may hold either name of tied tensors.
            tensors[original] = tensors.pop(name)
        elif np.array_equal(tensors[name], tensors[original]):
            del tensors[name]
    for name in [name for name in tensors if name.endswith(_NO_WEIGHTS)]:
        del tensors[name]


def describe(model: keras.Model, values: dict[str, Any], folder: Path) -> None:
    """Sets class names and activation from config.json's `values`; raises UserError for unsupported values."""
    problem = values.get("problem_type")
    if isinstance(model, ClassesModel):
        names = class_names(values, folder / "config.json", model.num_classes)
        made_up = all(label == f"LABEL_{number}" for number, label in enumerate(names))
        model.name_classes(model.num_classes, None if made_up else names)
    if isinstance(model, (AlbertClassifier, AlbertRegressor)):
        classes = getattr(model, "num_classes", 1)
        activation = score_activation(values, folder, classes)
        is_several = problem == "multi_label_classification"
        if is_several and activation == "linear" and classes > 1:
            logging.warning("scores of '%s' are logits there; here each passes through a sigmoid", folder)
        if is_several and (activation is None or (activation == "linear" and classes > 1)):
            activation = "sigmoid"
    if isinstance(model, AlbertRegressor):
        class_names(values, folder / "config.json", 1)
        model.activation = activation or "linear"
        if activation is None:
            logging.warning(
                "'%s' does not say what its score passes through; the logit is given, and not its sigmoid as by the"
                " CrossEncoder of sentence-transformers",
                folder,
            )
    elif isinstance(model, AlbertClassifier):
        if problem == "regression":
            raise UserError(
                f"'{folder / 'config.json'}': problem_type 'regression' of {classes} numbers is not offered"
            )
        model.multi_label = activation == "sigmoid"
        if activation not in ("linear", "softmax", "sigmoid", None):
            logging.warning(
                "scores of '%s' pass through %s there; here are the softmax's probabilities", folder, activation
            )


def class_names(values: dict[str, Any], where: Path, num_classes: int) -> list[str]:
    """Returns unique class names, by default LABEL_0, LABEL_1, ...; raises UserError unless there are `num_classes`."""
    named = values.get("id2label")
    if not named:
        count = values.get("num_labels", num_classes)
        if count != num_classes:
            raise UserError(f"'{where}': num_labels is {count}, and the weights have {num_classes} classes")
        # The default names of transformers.
        return [f"LABEL_{number}" for number in range(num_classes)]
    if not isinstance(named, dict) or not all(isinstance(name, str | int | float) for name in named.values()):
        raise UserError(f"'{where}': id2label must hold names by class number, not {named!r}")
    if sorted(named, key=str) != sorted(map(str, range(num_classes))):
        raise UserError(
            f"'{where}': id2label names {len(named)} classes ({', '.join(map(str, list(named)[:5]))}), and the weights"
            f" have {num_classes}, numbered from 0; write a name for each"
        )
    names = [str(named[str(number)]) for number in range(num_classes)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        logging.warning("'%s': id2label names several classes %s; their numbers are added", where, ", ".join(twice))
        names = [f"{name} ({number})" if name in twice else name for number, name in enumerate(names)]
    return names
