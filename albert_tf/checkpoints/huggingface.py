"""Checkpoints of HuggingFace transformers, in one file or sharded."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging
from safetensors.numpy import save_file

from albert_tf.checkpoints import xlnet
from albert_tf.checkpoints.sentence_folders import score_activation, written_activation
from albert_tf.checkpoints.tensor_files import read_tensors
from albert_tf.checkpoints.variables import (
    TABLES,
    Source,
    build_model,
    check_published,
    encoder_of,
    extract,
    fill,
    layer_sources,
    mentions,
)
from albert_tf.config import AlbertConfig
from albert_tf.config.published import MPNET
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
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.permutation.pretrainer import XlnetPretrainer
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir, read_json, replacing, write_json

_ARCHITECTURES = {
    AlbertClassifier: "ForSequenceClassification",
    AlbertRegressor: "ForSequenceClassification",
    AlbertTokenClassifier: "ForTokenClassification",
    AlbertMultipleChoice: "ForMultipleChoice",
    AlbertSpanPredictor: "ForQuestionAnswering",
    AlbertEncoder: "Model",
}


def load_huggingface(path: str | os.PathLike, model: keras.Model | None = None) -> keras.Model:
    """Loads an ALBERT, BERT, RoBERTa (XLM-RoBERTa, CamemBERT), MPNet or XLNet saved by transformers.

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
    if model is None:
        config = AlbertConfig.from_json(file.parent / "config.json", _family_in(tensors))
    else:
        config = encoder_of(model).config
    family = _family_in(tensors, config)
    has_prefix = any(name.startswith(_PREFIXES[family]) for name in tensors)
    prefix = _PREFIXES[family] if has_prefix else ""
    sources = _sources(config, family, prefix, "classifier.weight" in tensors)
    if family in _HEADS_WITH_POOLER and "classifier.out_proj.weight" in tensors:
        _make_pooler_of_head(sources, tensors)
    if family == "xlnet":
        tensors = xlnet.flattened(tensors)
    else:
        _drop_copies(tensors, sources, family)
    if model is None:
        names = values.get("architectures") or [""]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise UserError(f"'{file.parent / 'config.json'}': architectures must be a list of names, not {names!r}")
        model = build_model(config, sources, tensors, "sop" if family == "albert" else "nsp", names[0], file)
        describe(model, values, file.parent)
    fill(model, sources, tensors, str(file))
    _check_activation(model, family, file.parent)
    return model


def save_huggingface(model: keras.Model, directory: str | os.PathLike) -> Path:
    """Writes `config.json` and `model.safetensors` for transformers.

    A model without shared blocks or projection becomes an XLNet if it has relative positions, an MPNet if it has
    distance buckets, a RoBERTa if it has a position offset, and otherwise a BERT. All others become an ALBERT, which
    needs a projection: an identity is added if the model has none.

    Raises:
        UserError: transformers cannot hold the model (partly shared blocks, factorization "word", the joint span head,
            a position offset with shared blocks, a RoBERTa with a pair head, a sentence embedder's pooling).
    """
    config = encoder_of(model).config
    family = _family_for(config)
    values = _config_json(model, config, family)
    _check_activation(model, family, directory)
    prefix = "" if isinstance(model, AlbertEncoder) else _PREFIXES[family]
    sources = _sources(config, family, prefix, isinstance(model, AlbertTokenClassifier))
    if family in _HEADS_WITH_POOLER and isinstance(model, (AlbertClassifier, AlbertRegressor)):
        _make_pooler_of_head(sources)
    tensors = extract(model, sources)
    if family == "albert" and not config.is_projected:
        tensors[f"{prefix}encoder.embedding_hidden_mapping_in.weight"] = np.eye(config.hidden_size, dtype="float32")
        tensors[f"{prefix}encoder.embedding_hidden_mapping_in.bias"] = np.zeros(config.hidden_size, "float32")
    if family == "xlnet":
        tensors = xlnet.unflattened(tensors, config)
    directory = make_output_dir(directory)
    with replacing(directory / "model.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
    write_json(directory / "config.json", values)
    return directory


def _family_in(tensors: dict[str, np.ndarray], config: AlbertConfig | None = None) -> str:
    if mentions(tensors, ".rel_attn."):
        return "xlnet"
    if not mentions(tensors, "encoder.layer."):
        return "albert"
    if mentions(tensors, ".attention.attn."):
        return "mpnet"
    if config is not None:
        return "roberta" if config.position_offset else "bert"
    return "roberta" if any(name.startswith(("roberta.", "lm_head.")) for name in tensors) else "bert"


def _family_for(config: AlbertConfig) -> str:
    if config.position_type == "relative":
        xlnet.check_form(config, "transformers")
        return "xlnet"
    check_published(config, "transformers", has_roberta=True, extensions=("random_depth", "distance_buckets"))
    if config.sharing in ("attention", "ffn"):
        raise UserError(f"transformers has no model with sharing '{config.sharing}'")
    if config.is_projected and config.factorization == "word":
        raise UserError("transformers has no model with factorization 'word'")
    is_plain = config.sharing == "none" and not config.is_projected and config.inner_group_num == 1
    if config.extension("distance_buckets") is not None:
        if not is_plain or any(getattr(config, key) != value for key, value in MPNET.items()):
            values = ", ".join(f"{key} {value}" for key, value in MPNET.items())
            raise UserError(
                f"transformers has distance buckets in MPNet alone, with {values} and without shared blocks or"
                " factorised embeddings; keep it as a .keras file"
            )
        return "mpnet"
    if config.position_offset and not is_plain:
        raise UserError(
            f"only RoBERTa has a position offset in transformers, and shares no block; position_offset"
            f" {config.position_offset} has no form there"
        )
    return "roberta" if config.position_offset else "bert" if is_plain else "albert"


def _config_json(model: keras.Model, config: AlbertConfig, family: str) -> dict[str, Any]:
    name = _CLASSES.get(family, family.capitalize())
    if isinstance(model, XlnetPretrainer):
        architecture = name + "LMHeadModel"
    elif family == "xlnet" and isinstance(model, AlbertSpanPredictor):
        architecture = name + ("ForQuestionAnswering" if model.joint else "ForQuestionAnsweringSimple")
    elif isinstance(model, AlbertPretrainer):
        architecture = name + ("ForPreTraining" if model.pair_head is not None else "ForMaskedLM")
    elif type(model) in _ARCHITECTURES:
        architecture = name + _ARCHITECTURES[type(model)]
    else:
        raise UserError(f"transformers has no class for an {type(model).__name__}; give its encoder")
    values = {"architectures": [architecture], "model_type": family, "tie_word_embeddings": True}
    values |= xlnet.config_values(config, "transformers") if family == "xlnet" else _config_values(config, family)
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


def _config_values(config: AlbertConfig, family: str) -> dict[str, Any]:
    own: tuple[str, ...] = ("sharing", "factorization", "always_project", "position_offset")
    own += () if family == "albert" else ("num_hidden_groups", "inner_group_num", "embedding_size")
    own += ("type_vocab_size",) if family == "mpnet" else ()
    values = {key: value for key, value in config.to_dict().items() if key not in own}
    if config.position_offset:
        # Positions are counted from it.
        values["pad_token_id"] = config.position_offset - 1
    if config.sharing == "none" and family == "albert":
        values["num_hidden_groups"] = config.num_hidden_layers
    values["hidden_act"] = {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(config.hidden_act, config.hidden_act)
    return values


# The end of the word embeddings' name in every family.
_TABLE = "embeddings.word_embeddings.weight"


def _without_wrapper(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    before = next((name.removesuffix(_TABLE) for name in tensors if name.endswith(_TABLE)), "")
    wrapper = next((before.removesuffix(own) for own in _PREFIXES.values() if before.endswith(own)), before)
    if not wrapper or not all(name.startswith(wrapper) for name in tensors):
        return tensors
    return {name.removeprefix(wrapper): tensor for name, tensor in tensors.items()}


def _sources(config: AlbertConfig, family: str, prefix: str, is_tagger: bool) -> dict[str, Source]:
    if family == "xlnet":
        return xlnet.huggingface_sources(config, prefix, is_tagger)
    like_bert = family != "albert"
    attention = _ATTENTION[family if family in _ATTENTION else "bert"]
    sources = {f"embeddings/{name}": Source(f"{prefix}embeddings.{name}.weight") for name in TABLES}
    sources["distance_bias/table"] = Source(f"{prefix}encoder.relative_attention_bias.weight")
    sources["masked_lm/output_bias"] = Source(f"{_WORDS[family]}.bias")
    layers = {
        "embeddings/layer_norm": f"{prefix}embeddings.LayerNorm",
        "embeddings/projection": f"{prefix}encoder.embedding_hidden_mapping_in",
        "pooler": f"{prefix}pooler" if family == "albert" else f"{prefix}pooler.dense",
    }
    for step in plan(config):
        own = {f"attention_{step.attention}/{name}": value for name, value in attention.items()}
        own |= {f"feed_forward_{step.feed_forward}/{name}": value for name, value in _FEED_FORWARD[like_bert].items()}
        group, inner = divmod(step.attention, config.inner_group_num)
        scope = f"layer.{step.attention}" if like_bert else f"albert_layer_groups.{group}.albert_layers.{inner}"
        layers |= {ours: f"{prefix}encoder.{scope}.{theirs}" for ours, theirs in own.items()}
    layers |= _HEADS[family]
    return sources | layer_sources(layers, "{layer}.{part}", kernel="weight", gamma="weight", beta="bias")


# The encoder's prefix in checkpoints with a head, and the prefix of class names.
_PREFIXES = {"albert": "albert.", "bert": "bert.", "roberta": "roberta.", "mpnet": "mpnet.", "xlnet": "transformer."}
_CLASSES = {"xlnet": "XLNet", "mpnet": "MPNet"}
# Families whose classifier has its own tanh layer instead of a pooler.
_HEADS_WITH_POOLER = ("roberta", "mpnet")
_ATTENTION = {
    "bert": {name: f"attention.self.{name}" for name in ("query", "key", "value")}
    | {"output": "attention.output.dense", "layer_norm": "attention.output.LayerNorm"},
    "mpnet": {name: f"attention.attn.{name[0]}" for name in ("query", "key", "value", "output")}
    | {"layer_norm": "attention.LayerNorm"},
    "albert": {name: f"attention.{name}" for name in ("query", "key", "value")}
    | {"output": "attention.dense", "layer_norm": "attention.LayerNorm"},
}
# By whether the checkpoint has BERT's layers.
_FEED_FORWARD = {
    True: {"intermediate": "intermediate.dense", "output": "output.dense", "layer_norm": "output.LayerNorm"},
    False: {"intermediate": "ffn", "output": "ffn_output", "layer_norm": "full_layer_layer_norm"},
}
_TASKS = {"classifier": "classifier", "span": "qa_outputs"}
# By family: the names of the masked-word head's bias and decoder.
_WORDS = {"albert": "predictions", "bert": "cls.predictions", "roberta": "lm_head", "mpnet": "lm_head"}
_HEADS = {
    "albert": _TASKS
    | {
        "masked_lm/dense": "predictions.dense",
        "masked_lm/layer_norm": "predictions.LayerNorm",
        "pair": "sop_classifier.classifier",
    },
    "bert": _TASKS
    | {
        "masked_lm/dense": "cls.predictions.transform.dense",
        "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
        "pair": "cls.seq_relationship",
    },
    "roberta": _TASKS | {"masked_lm/dense": "lm_head.dense", "masked_lm/layer_norm": "lm_head.layer_norm"},
}
_HEADS["mpnet"] = _HEADS["roberta"]


def _make_pooler_of_head(sources: dict[str, Source], tensors: dict[str, np.ndarray] | None = None) -> None:
    # The first layer of RoBERTa's classification head becomes the pooler; the unused pooler is dropped.
    for part, theirs in (("kernel", "weight"), ("bias", "bias")):
        if tensors is not None:
            tensors.pop(sources[f"pooler/{part}"].name, None)
        sources[f"pooler/{part}"] = sources[f"pooler/{part}"]._replace(name=f"classifier.dense.{theirs}")
        sources[f"classifier/{part}"] = sources[f"classifier/{part}"]._replace(name=f"classifier.out_proj.{theirs}")


def _check_activation(model: keras.Model, family: str, folder: str | os.PathLike) -> None:
    hidden_act = encoder_of(model).config.hidden_act
    if family in _HEADS_WITH_POOLER and isinstance(model, AlbertPretrainer) and hidden_act != "gelu_erf":
        logging.warning(
            "'%s': the head for masked words has the activation '%s' here, and the exact gelu in transformers whatever"
            " hidden_act says; its scores differ",
            *(folder, hidden_act),
        )


def _drop_copies(tensors: dict[str, np.ndarray], sources: dict[str, Source], family: str) -> None:
    decoder = f"{_WORDS[family]}.decoder"
    originals = {"weight": "embeddings/word_embeddings", "bias": "masked_lm/output_bias"}
    for part, ours in originals.items():
        copy, original = tensors.get(f"{decoder}.{part}"), tensors.get(sources[ours].name)
        if copy is None:
            continue
        if original is None:
            # A file may hold either name of tied tensors.
            tensors[sources[ours].name] = tensors.pop(f"{decoder}.{part}")
        elif np.array_equal(copy, original):
            del tensors[f"{decoder}.{part}"]
    for name in [name for name in tensors if name.endswith("embeddings.position_ids")]:
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
