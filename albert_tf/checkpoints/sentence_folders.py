"""Folders of sentence-transformers: modules, row length, prompts and activations."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.checkpoints.tensor_files import read_tensors
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.model_files import weights_file
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import (
    SPARSE_ACTIVATIONS,
    SPARSE_POOLINGS,
    AlbertSentenceEmbedder,
    AlbertSparseEmbedder,
)
from tfrecords.answers.texts import default_prompt, prompt_name_of
from tfrecords.base import files, hub
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.folders.other_files import SENTENCE_FILES as TRANSFORMER_FILES
from tfrecords.tokenizers.loading import tokenizer_in

# The list of a model's modules, and the folder of each.
MODULES = "modules.json"
_SETTINGS = "config_sentence_transformers.json"
# The order of concatenation where each pooling has its own key.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = {name: name.removesuffix("_tokens") for name in _POOLING_KEYS.values()}
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Softmax": "softmax",
}
# Tokenizers without a limit say 1e30.
_UNLIMITED = 2**31 - 1
_SENTENCE = ("sentence_embedding",)
# By module: the keys that are not read, with their allowed values; (): any value.
FIXED: dict[str, dict[str, tuple]] = {
    "Pooling": {"word_embedding_dimension": (), "embedding_dimension": ()},
    "Dense": {
        "in_features": (),
        "use_residual": (False,),
        "module_input_name": _SENTENCE,
        "module_output_name": (*_SENTENCE, None),
    },
    "SpladePooling": {"word_embedding_dimension": (), "embedding_dimension": (), "chunk_size": ()},
    "SparseStaticEmbedding": {"frozen": ()},
    "Normalize": {"module_input_name": _SENTENCE, "module_output_name": (*_SENTENCE, None)},
    # No dropout outside training.
    "Dropout": {"dropout": ()},
    "Transformer": {
        "transformer_task": ("feature-extraction", "sequence-classification", "fill-mask"),
        "modality_config": (),
        "module_output_name": ("token_embeddings", "scores"),
        "processing_kwargs": ({}, None),
        "unpad_inputs": (),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
        **dict.fromkeys(("model_args", "model_kwargs", "config_args", "config_kwargs"), ({}, None)),
        **dict.fromkeys(("tokenizer_args", "tokenizer_kwargs", "processor_kwargs"), ({}, None)),
        # Read with the tokenizer.
        "do_lower_case": (),
    },
    _SETTINGS: {
        "__version__": (),
        "requirements": (),
        "model_type": ("SentenceTransformer", "CrossEncoder", "SparseEncoder"),
        "keep_in_fp32_modules": (),
    },
}
READ = {
    "Pooling": (*_POOLING_KEYS, "pooling_mode", "include_prompt"),
    "Dense": ("out_features", "bias", "activation_function"),
    "Transformer": ("max_seq_length",),
    "SpladePooling": ("pooling_strategy", "activation_function"),
    _SETTINGS: ("prompts", "default_prompt_name", "similarity_fn_name", "activation_fn", "truncate_dim"),
}


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """Returns a folder's modules with their `place`, the transformer first; [] if another library wrote the folder."""
    path = folder / MODULES
    modules = hub.read_modules(folder.joinpath) if path.is_file() else []
    if modules and hub.module_kind(modules[0]) not in ("Transformer", "MLMTransformer"):
        raise UserError(f"'{path}' begins with a {modules[0].get('type')}; only transformers are read")
    return [module | {"place": files.inside(folder, module["path"], path)} for module in modules]


def read_settings(folder: Path, inside: Path) -> dict[str, Any]:
    """Returns the settings in a folder and in the folder of its transformer, `inside`.

    Keys, if set: `max_seq_length` (tokens), `truncate_dim` (numbers of a vector), `prompts` (by name),
    `default_prompt_name`, `similarity_fn_name` (unless cosine). Raises UserError for unsupported settings.
    """
    found: dict[str, Any] = {}
    path = next((inside / name for name in TRANSFORMER_FILES if (inside / name).is_file()), None)
    length = _read("Transformer", path).get("max_seq_length") if path else None
    if isinstance(length, bool) or not isinstance(length, int | float | None) or not (length is None or length >= 0):
        raise UserError(f"'{path}': max_seq_length must be a number of tokens, not {length!r}")
    if length := length or tokenizer_limit(inside):
        found["max_seq_length"] = int(min(length, _UNLIMITED))
    values = _read(_SETTINGS, folder / _SETTINGS)
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"'{folder / _SETTINGS}': prompts must be texts by name, not {prompts!r}")
    name = values.get("default_prompt_name")
    if name is not None:
        # There, queries and documents have an empty prompt where they have none, and not the default one.
        prompts = {role: "" for role in ("query", "document") if not prompt_name_of(prompts, role)} | prompts
    if prompts:
        found["prompts"] = {name: text or "" for name, text in prompts.items()}
    default = "dot" if values.get("model_type") == "SparseEncoder" else "cosine"
    if (compared := values.get("similarity_fn_name") or default) != "cosine":
        found["similarity_fn_name"] = compared
    if (kept := values.get("truncate_dim")) is not None:
        if type(kept) is not int or kept < 1:
            raise UserError(
                f"'{folder / _SETTINGS}': truncate_dim must be a number of a vector's numbers, not {kept!r}"
            )
        found["truncate_dim"] = kept
    if name is not None:
        if not isinstance(name, str) or name not in prompts:
            raise UserError(f"'{folder / _SETTINGS}': default_prompt_name '{name}' is none of its prompts")
        found["default_prompt_name"] = name
    return found


def tokenizer_limit(folder: Path) -> float:
    """Returns the tokenizer's limit for rows, in tokens; 0 for no limit."""
    values = files.read_object(folder / "tokenizer_config.json")
    length = values.get("model_max_length", values.get("max_len"))
    return length if isinstance(length, (int, float)) and length > 0 else 0


def make_embedder(
    model: AlbertEncoder | AlbertPretrainer, folder: Path, modules: Sequence[Mapping[str, Any]], task: dict[str, Any]
) -> AlbertSentenceEmbedder:
    """Builds an embedder from the model and further modules; removes what it followed from `task`."""
    places = (modules[0]["place"] / name for name in TRANSFORMER_FILES)
    said = next((files.read_object(path) for path in places if path.is_file()), {})
    gives_words = hub.module_kind(modules[0]) == "MLMTransformer" or said.get("transformer_task") == "fill-mask"
    is_named_sparse = files.read_object(folder / _SETTINGS).get("model_type") == "SparseEncoder"
    behind = [module for module in modules[1:] if module.get("route") != "query"]
    is_sparse = [hub.module_kind(module) for module in behind] == ["SpladePooling"]
    if is_sparse != gives_words or (not is_sparse and (is_named_sparse or modules[1:] != behind)):
        raise UserError(
            f"'{folder / MODULES}': scores of words (MLMTransformer, transformer_task fill-mask, model_type "
            "SparseEncoder) are followed with one SpladePooling alone, and that one with them"
        )
    if is_sparse:
        return _make_sparse(model, folder, modules, task)
    encoder, pooling, normalize = encoder_of(model), "", False
    projections, tensors, width = list[dict[str, Any]](), list[list[Any]](), 0
    for module in behind:
        kind, path = hub.module_kind(module), module["place"]
        known = kind in ("Dropout", "Normalize") or (kind == "Pooling" and not pooling) or (kind == "Dense" and pooling)
        if not known or (normalize and kind != "Normalize"):
            after = "one Pooling, then Dense, then Normalize"
            raise UserError(
                f"'{folder / MODULES}': the module {module.get('type')} is not followed here, known is {after}; to load"
                f" the encoder alone, copy the folder without {MODULES}"
            )
        values = _read(kind, path / "config.json")
        if kind == "Pooling":
            if not (path / "config.json").is_file():
                raise UserError(f"no '{path / 'config.json'}', which says how tokens are pooled; copy it again")
            pooling = _pooling(values, path / "config.json")
            if encoder.config.spec.last_token and "cls" in pooling.split("+"):
                raise UserError(
                    f"'{path / 'config.json'}': pooling 'cls' is the first token there, and [CLS] the last one of this"
                    " model; write 'lasttoken' for [CLS]"
                )
            width = encoder.config.hidden_size * len(pooling.split("+"))
            if not values.get("include_prompt", True) and default_prompt(task):
                raise UserError(
                    f"'{path / 'config.json'}': include_prompt false, with a default prompt in '{_SETTINGS}', is not"
                    " followed here; remove default_prompt_name there to embed texts without a prompt"
                )
            if not values.get("include_prompt", True) and any(task.get("prompts", {}).values()):
                logging.warning(
                    "'%s': include_prompt false is not followed here; requests cannot ask for the prompts of '%s'",
                    path / "config.json", _SETTINGS,
                )  # fmt: skip
                task["prompts"] = {name: text for name, text in task["prompts"].items() if not text}
        elif kind == "Dense":
            options, weights = _dense(values, path, width)
            projections.append(options)
            tensors.append(weights)
            width = options["units"]
        normalize = normalize or kind == "Normalize"
    if not pooling:
        raise UserError(f"'{folder / MODULES}' has no Pooling; to load the encoder alone, copy the folder without it")
    model = AlbertSentenceEmbedder(encoder, pooling, normalize, projections, task.pop("truncate_dim", 0))
    for layer, weights in zip(model.projections, tensors):
        layer.set_weights(weights)
    return model


def _make_sparse(
    model: AlbertEncoder | AlbertPretrainer, folder: Path, modules: Sequence[Mapping[str, Any]], task: dict[str, Any]
) -> AlbertSparseEmbedder:
    inside, path, *tables = (module["place"] for module in modules)
    path /= "config.json"
    values = _read("SpladePooling", path)
    pooling, activation = values.get("pooling_strategy", "max"), values.get("activation_function", "relu")
    if not isinstance(model, AlbertPretrainer):
        raise UserError(f"'{folder / MODULES}' has a SpladePooling, and the model no head for masked words")
    if f"splade_{pooling}" not in SPARSE_POOLINGS or activation not in SPARSE_ACTIVATIONS:
        raise UserError(f"'{path}': pooling_strategy {pooling!r} with {activation!r} is not followed here")
    weights, length = _query_table(tables[0], inside) if tables else (None, 0)
    sparse = AlbertSparseEmbedder(
        model.encoder, f"splade_{pooling}", activation, length, truncate_dim=task.get("truncate_dim", 0)
    )
    sparse.masked_lm_head.set_weights(model.masked_lm_head.get_weights())
    if weights is not None:
        if weights.shape != (sparse.dimensions,):
            raise UserError(f"'{folder}' has a table for queries {weights.shape}, must be ({sparse.dimensions},)")
        sparse.query_weights.assign(weights)
    return sparse


def _query_table(place: Path, inside: Path) -> tuple[np.ndarray, int]:
    # The weights of tokens, and how many tokens of a query are read.
    _read("SparseStaticEmbedding", place / "config.json")
    tensors = read_tensors(weights_file(place))
    if list(tensors) != ["weight"]:
        raise UserError(f"'{place}' holds {', '.join(tensors)}, and a SparseStaticEmbedding has weight alone")
    own, other = tokenizer_in(inside), tokenizer_in(place)
    if own is None or other is None or own.sha256 != other.sha256:
        raise UserError(f"'{place}' must have the tokenizer of '{inside}'; others for queries are not followed here")
    return tensors["weight"], int(min(tokenizer_limit(place) or _UNLIMITED, _UNLIMITED))


def score_activation(values: Mapping[str, Any], folder: Path, classes: int) -> str | None:
    """Returns a cross-encoder's activation ("linear", "sigmoid", ...); None for other models.

    The folder's settings take precedence over `values` from config.json, as in
    sentence-transformers/cross_encoder/model.py.
    """
    newer = values.get("sentence_transformers") or {}
    if not isinstance(newer, dict):
        raise UserError(f"'{folder / 'config.json'}': sentence_transformers must be an object, not {newer!r}")
    # Without a list of modules the settings are not read there either.
    settings = files.read_object(folder / _SETTINGS) if (folder / MODULES).is_file() else {}
    is_cross_encoder = settings.get("model_type") == "CrossEncoder"
    named = settings.get("activation_fn") if is_cross_encoder else None
    named = named or newer.get("activation_fn") or values.get("sbert_ce_default_activation_function")
    if named is None:
        # sentence-transformers' default.
        default = "sigmoid" if classes == 1 else "linear"
        return default if is_cross_encoder or newer else None
    return _activation(named, folder)


def is_of_sentence_transformers(folder: Path) -> bool:
    """Returns whether sentence-transformers wrote a folder."""
    if (folder / MODULES).is_file():
        return True
    values = files.read_object(folder / "config.json")
    return bool(values.get("sentence_transformers") or values.get("sbert_ce_default_activation_function"))


def written_activation(name: str) -> dict[str, Any]:
    """Returns config.json's entry for an activation, as sentence-transformers 4 and later write it."""
    theirs = next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)
    if theirs is None:
        raise UserError(f"activation '{name}' has no form there; known are {', '.join(ACTIVATIONS.values())}")
    return {"sentence_transformers": {"activation_fn": theirs}}


def _read(kind: str, path: Path) -> dict[str, Any]:
    values = files.read_object(path)
    for key, value in values.items():
        fixed = FIXED[kind].get(key)
        if fixed is None and key not in READ.get(kind, ()):
            raise UserError(f"'{path}': the key '{key}' is not known of a {kind}; remove it if it changes no vector")
        if fixed and value not in fixed:
            raise UserError(f"'{path}': {key} {value!r} is not followed here; known: {', '.join(map(repr, fixed))}")
    return values


def _pooling(values: Mapping[str, Any], path: Path) -> str:
    asked = values.get("pooling_mode")
    if asked is None:
        asked = [name for key, name in _POOLING_KEYS.items() if values.get(key)] or ["mean"]
    names = asked if isinstance(asked, list) else [asked]
    if unknown := [name for name in names if not isinstance(name, str) or name not in POOLINGS]:
        raise UserError(f"'{path}': pooling {unknown[0]!r} is not known; known are {', '.join(POOLINGS)}")
    return "+".join(POOLINGS[name] for name in names)


def _dense(values: Mapping[str, Any], path: Path, width: int) -> tuple[dict[str, Any], list[Any]]:
    # The options of a layer and its weights, which say its size before it is made.
    activation = _activation(values.get("activation_function", "torch.nn.modules.activation.Tanh"), path)
    units, has_bias = values.get("out_features"), values.get("bias", True)
    shapes = {"linear.weight": (units, width)} | ({"linear.bias": (units,)} if has_bias else {})
    tensors = read_tensors(weights_file(path))
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        found = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items())
        raise UserError(f"'{path}' has {found}; its config.json and the layer before ask for {shapes}")
    # Keras's "gelu" is the exact one, as PyTorch's is.
    return {"units": units, "activation": activation, "use_bias": bool(has_bias)}, [tensors[name].T for name in shapes]


def _activation(name: Any, path: Path) -> str:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UserError(f"'{path}': the activation {name} is not known; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
