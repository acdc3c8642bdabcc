"""Models of keras-hub: presets, and models in memory, with their tokenizers."""

import contextlib
import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.untrusted import check_claims, check_classes, check_hdf5, json_objects
from albert_tf.checkpoints.variables import Source, build_model, fill, named_variables
from albert_tf.config import AlbertConfig
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor
from tfrecords.base.errors import UserError, check_libraries, first_line
from tfrecords.base.files import read_json, read_object
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import tokenizer_in


def load_keras_hub(preset: Any, model: keras.Model | None = None) -> keras.Model:
    """Loads an ALBERT, BERT or RoBERTa of keras-hub, and a TextClassifier's head; warns about other heads.

    Args:
        preset: a backbone, a task model, or an argument of `from_preset` (a folder or preset name).
        model: the model or AlbertEncoder to fill. None builds an AlbertEncoder or, from a TextClassifier, an
            AlbertClassifier (from one output, an AlbertRegressor).

    Raises:
        UserError: the preset cannot be loaded or does not fit.
    """
    task = _task(preset)
    backbone = getattr(task, "backbone", task)
    layers = _layers(backbone)
    if task is not backbone and (head := getattr(task, "output_dense", None)) is not None:
        layers["classifier"] = head
        layers |= {"pooler": pooled} if (pooled := getattr(task, "pooled_dense", None)) is not None else {}
    elif task is not backbone:
        logging.warning("the head of keras-hub's %s is not read, its backbone alone", type(task).__name__)
    tensors = _tables(backbone) | {name: values for key, one in layers.items() for name, values in _arrays(key, one)}
    config = _config(backbone)
    sources = {name: Source(name) for name in tensors}
    if model is None and "classifier" in layers:
        model = _with_head(config, task)
    elif model is None:
        model = build_model(config, sources, tensors, "sop")
    # keras-hub has a separate axis for heads; the memory layout is the same.
    shapes = {name: tuple(variable.shape) for name, variable in named_variables(model).items()}
    for name, tensor in tensors.items():
        if name in shapes and tensor.size == np.prod(shapes[name]) and "attention_" in name:
            tensors[name] = tensor.reshape(shapes[name])
    fill(model, sources, tensors, str(preset) if isinstance(preset, (str, os.PathLike)) else type(backbone).__name__)
    return model


def library() -> Any:
    """Imports and returns keras-hub, an optional library."""
    check_libraries("a model of keras-hub", "keras-hub", keras_hub="keras-hub")
    import keras_hub

    return keras_hub


def _task(preset: Any) -> Any:
    keras_hub = library()
    if isinstance(preset, (str, os.PathLike)):
        described = Path(preset) / "task.json"
        kind = read_object(described).get("class_name", "")
        try:
            _check_folder(Path(preset))
            if kind.endswith("TextClassifier"):
                preset = keras_hub.models.TextClassifier.from_preset(str(preset), preprocessor=None)
            else:
                preset = keras_hub.models.Backbone.from_preset(str(preset))
        except Exception as error:
            raise UserError(f"keras-hub cannot load the preset '{preset}': {first_line(error)}") from error
        if kind and not kind.endswith("TextClassifier"):
            logging.warning("the head of the %s in '%s' is not read, its backbone alone", kind, described.parent)
    backbone = getattr(preset, "backbone", preset)
    models = keras_hub.models
    if not isinstance(backbone, (models.AlbertBackbone, models.BertBackbone, models.RobertaBackbone)):
        raise UserError(
            f"{type(backbone).__name__} is none of keras-hub's AlbertBackbone, BertBackbone and RobertaBackbone"
        )
    return preset


# The names of keras-hub's sizes in our configurations.
_SIZES = {
    "vocabulary_size": "vocab_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
}


def _check_folder(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*.h5"))
    for path in sorted(folder.glob("*.json")):
        values = read_json(path)
        check_classes(values, path)
        for config in json_objects(values):
            sizes = {_SIZES.get(name, name): value for name, value in config.items()}
            # Only ALBERT's blocks are shared; BERT and RoBERTa have one for each layer.
            check_claims(sizes | {"sharing": "all" if "num_groups" in config else "none"}, size, path)
    for path in sorted(folder.glob("*.weights.h5")):
        check_hdf5(path, path)


# By whether there is one output, and by activation.
_HEADS: dict[tuple[bool, str], Any] = {
    (False, "linear"): AlbertClassifier,
    (False, "softmax"): AlbertClassifier,
    (False, "sigmoid"): functools.partial(AlbertClassifier, multi_label=True),
    (True, "linear"): AlbertRegressor,
    (True, "sigmoid"): functools.partial(AlbertRegressor, activation="sigmoid"),
}


def _with_head(config: AlbertConfig, task: Any) -> keras.Model:
    classes, activation = task.num_classes, getattr(task.activation, "__name__", str(task.activation))
    make = _HEADS.get((classes == 1, activation))
    if make is None:
        known = ", ".join(name for is_one, name in _HEADS if is_one == (classes == 1))
        raise UserError(f"{classes} scores that pass through '{activation}' are not known here; known are {known}")
    if getattr(task, "hidden_dim", None) not in (None, config.hidden_size):
        raise UserError(f"its head has hidden_dim {task.hidden_dim}; known is the backbone's {config.hidden_size}")
    return make(config, dropout=task.dropout, **({} if classes == 1 else {"num_classes": classes}))


# RoBERTa's positions start after the padding's id.
_OFFSET = 2


def _config(backbone: Any) -> AlbertConfig:
    rows, width = backbone.token_embedding.embeddings.shape
    sizes = dict(
        vocab_size=rows,
        embedding_size=width,
        hidden_size=backbone.hidden_dim,
        num_hidden_layers=backbone.num_layers,
        num_attention_heads=backbone.num_heads,
        intermediate_size=backbone.intermediate_dim,
        hidden_dropout_prob=backbone.dropout,
        attention_probs_dropout_prob=backbone.dropout,
        max_position_embeddings=backbone.max_sequence_length,
    )
    if not hasattr(backbone, "num_segments"):
        sizes["max_position_embeddings"] += _OFFSET
        return AlbertConfig.named("roberta_base").replace(**sizes)
    is_bert = not hasattr(backbone, "embedding_dim")
    return AlbertConfig(
        **sizes,
        num_hidden_groups=1 if is_bert else backbone.num_groups,
        inner_group_num=1 if is_bert else backbone.num_inner_repetitions,
        sharing="none" if is_bert else "all",
        type_vocab_size=backbone.num_segments,
        always_project=not is_bert and width == backbone.hidden_dim,
    )


def _tables(backbone: Any) -> dict[str, np.ndarray]:
    words = backbone.token_embedding.embeddings
    if hasattr(backbone, "segment_embedding"):
        positions, segments = backbone.position_embedding.position_embeddings, backbone.segment_embedding.embeddings
    else:
        positions = backbone.embeddings.position_embedding.position_embeddings
        positions = np.pad(_array(positions), ((_OFFSET, 0), (0, 0)))
        segments = np.zeros((1, backbone.hidden_dim), "float32")
    tables = {"word": words, "position": positions, "token_type": segments}
    return {f"embeddings/{name}_embeddings": _array(table) for name, table in tables.items()}


def _arrays(prefix: str, layer: keras.layers.Layer) -> list[tuple[str, np.ndarray]]:
    names = [variable.name for variable in layer.variables if not variable.name.startswith("lora_")]
    if getattr(layer, "quantization_mode", None):
        raise UserError(f"{prefix} is quantized to {layer.quantization_mode}; load the model before it was")
    values = {variable.name: variable for variable in layer.variables}
    return [(f"{prefix}/{name}", _array(layer.kernel if name == "kernel" else values[name])) for name in names]


def _array(values: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(values), "float32")


def _layers(backbone: Any) -> dict[str, keras.layers.Layer]:
    layers = {"embeddings/layer_norm": backbone.embeddings_layer_norm}
    for ours, theirs in (("pooler", "pooled_dense"), ("embeddings/projection", "embeddings_projection")):
        layers |= {ours: getattr(backbone, theirs)} if hasattr(backbone, theirs) else {}
    groups = backbone.transformer_layers
    blocks = [block for group in groups for block in (group if isinstance(group, (list, tuple)) else [group])]
    for i, block in enumerate(blocks):
        attention = block._self_attention_layer
        layers |= {f"attention_{i}/{name}": getattr(attention, f"{name}_dense") for name in ("query", "key", "value")}
        layers[f"attention_{i}/output"] = attention.output_dense
        layers[f"attention_{i}/layer_norm"] = block._self_attention_layer_norm
        layers[f"feed_forward_{i}/intermediate"] = block._feedforward_intermediate_dense
        layers[f"feed_forward_{i}/output"] = block._feedforward_output_dense
        layers[f"feed_forward_{i}/layer_norm"] = block._feedforward_layer_norm
    return layers


_MODELS = "AlbertTextClassifier, BertTextClassifier or RobertaTextClassifier, or a backbone of theirs"
# Truncation of pairs. "waterfall" cuts the second text first.
_TRUNCATE = "round_robin"
# Texts, by the feature that they test, that must have equal ids in keras-hub.
_TEXTS = {
    "letters": "The quick Brown fox isn't here",
    "signs": "WHY?! (yes) it's 3.14, $5 e-mail a_b c++ #x",
    "accents": "café Ünïcode naïve São Łódź ñ",
    "quotes and dashes": "\u201cquotes\u201d \u2013 dash \u2014 \u2018x\u2019",
    "spaces": "  a  b\tc\nd ",
    "other scripts": "日本語 text Привет العربية हिन्दी",
    "emoji": "good 😀 👍🏽 ok",
}


def read_task(preset: Any) -> tuple[keras.Model, Tokenizer | None, dict[str, Any]]:
    """Converts a keras-hub model; returns our model, its tokenizer or None, and a dict, perhaps with `max_seq_length`.

    `preset` is a task, a backbone, or a kaggle:// or hf:// name to download.
    """
    if isinstance(preset, str):
        preset, preprocessor = _download(preset)
    elif any(cls.__module__.startswith("keras_hub.") for cls in type(preset).mro()):
        preprocessor = getattr(preset, "preprocessor", None)
    else:
        raise UserError(f"load takes a path, a name, or a model: an {_MODELS}; not a {type(preset).__name__}")
    return load_keras_hub(preset), *read_preprocessor(preprocessor)


def read_preprocessor(preprocessor: Any) -> tuple[Tokenizer | None, dict[str, Any]]:
    """Converts a keras-hub preprocessor or tokenizer to ours and task settings; raises UserError if its ids differ."""
    if preprocessor is None:
        return None, {}
    if getattr(preprocessor, "truncate", _TRUNCATE) != _TRUNCATE:
        raise UserError(f"its preprocessor cuts pairs by '{preprocessor.truncate}'; only '{_TRUNCATE}' is known here")
    theirs = getattr(preprocessor, "tokenizer", preprocessor)
    tokenizer, found = _nearest(theirs)
    if tokenizer is None or found:
        raise UserError(
            f"keras-hub's {type(theirs).__name__} reads {', '.join(found) or 'texts'} otherwise than any tokenizer "
            "here; give the model's preprocessor its usual options, or load(..., tokenizer=FOLDER)"
        )
    length = getattr(preprocessor, "sequence_length", None)
    return tokenizer, {"max_seq_length": length} if length else {}


def _nearest(theirs: Any) -> tuple[Tokenizer | None, list[str]]:
    # The first of our tokenizers with the same ids as keras-hub's; if none has, the last one and its differences.
    rules: list[tuple[bool | None, bool | None]] = [(None, None), (None, True), (False, True)]
    if isinstance(getattr(theirs, "lowercase", None), bool):
        rules = [(theirs.lowercase, not theirs.strip_accents)]
    tokenizer, found = None, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_to_preset(folder)
        for lower_case, keep_accents in rules:
            with contextlib.suppress(UserError):  # A SentencePiece model may define its case itself.
                tokenizer = tokenizer_in(folder, lower_case, keep_accents)
                if tokenizer is not None and not (found := _differing(tokenizer, theirs)):
                    break
    return tokenizer, found


def _differing(tokenizer: Tokenizer, theirs: Any) -> list[str]:
    rows = theirs(list(_TEXTS.values()))
    rows = rows.to_list() if hasattr(rows, "to_list") else rows
    return [what for (what, text), row in zip(_TEXTS.items(), rows) if tokenizer.encode(text) != [int(i) for i in row]]


def folder_preprocessor(folder: str | os.PathLike) -> Any:
    """Loads a preset's preprocessor or tokenizer; None if neither loads."""
    models, folder = library().models, Path(folder)
    kinds = {"preprocessor.json": models.TextClassifierPreprocessor, "tokenizer.json": models.Tokenizer}
    kind = next((kind for name, kind in kinds.items() if (folder / name).is_file()), None)
    try:
        return kind and kind.from_preset(str(folder))
    except Exception as error:
        # keras-hub passes on what each part of a preset raises.
        logging.warning("keras-hub cannot load the tokenizer of '%s', and its vocabulary alone is read: %s", folder,
                        first_line(error))  # fmt: skip
        return None


def _download(name: str) -> tuple[Any, Any]:
    models = library().models
    try:
        task = models.TextClassifier.from_preset(name)
        return task, task.preprocessor
    except Exception as error:
        # keras-hub passes on what its downloaders and each part of a preset raise; a backbone alone is no classifier.
        logging.debug("'%s' is no classifier: %s", name, first_line(error))
    try:
        return models.Backbone.from_preset(name), models.Tokenizer.from_preset(name)
    except Exception as error:
        raise UserError(f"keras-hub cannot load the preset '{name}': {first_line(error)}") from error
