import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
from absl import logging

from albert_tf.checkpoints import formats
from albert_tf.checkpoints.huggingface import class_names
from albert_tf.checkpoints.sentence_folders import (
    is_of_sentence_transformers,
    make_embedder,
    read_modules,
    read_settings,
    tokenizer_limit,
)
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loaded import Loaded
from albert_tf.loading.hub import find_model, is_preset
from albert_tf.loading.model_files import MODEL_FILE, TASK_FILE, load_task, unknown_files
from albert_tf.loading.own_tokenizer import check_own, check_rows, refuse_other
from albert_tf.models.base import EncoderModel
from albert_tf.models.classifiers import AlbertRegressor, ClassesModel
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from tfrecords.answers.texts import default_prompt
from tfrecords.base import files
from tfrecords.base.errors import UserError, check_counts, check_truths, refuse
from tfrecords.tokenizers.base import Tokenizer, UnknownTokenizer
from tfrecords.tokenizers.loading import load_tokenizer, tokenizer_in
from tfrecords.tokenizers.vocabularies.comparing import difference

Given = str | os.PathLike | Tokenizer


def load(
    path: Any,
    tokenizer: Given = "",
    lower_case: bool | None = None,
    keep_accents: bool | None = None,
    depth: int = 0,
    other_tokenizer: bool = False,
    revision: str = "",
    allow_pickle: bool = False,
    labels: Sequence[str] | None = None,
) -> Loaded:
    """Loads a folder that training wrote, a .keras file, or a published checkpoint in any supported format.

    A sentence-transformers folder becomes an AlbertSentenceEmbedder with the same pooling.

    Args:
        path: one of
            a folder, a .keras or .safetensors file, or a TensorFlow checkpoint's prefix;
            a Hugging Face model's name, such as "sentence-transformers/all-MiniLM-L6-v2", if no such path exists;
            a keras-hub preset, kaggle://... or hf://...;
            a model in memory, of this library or a keras-hub classifier or backbone.
        tokenizer: replaces the model's: a vocabulary file, a folder, a hub name, or another loaded model's `tokenizer`.
        lower_case: whether a published vocabulary is lower-cased; None: see `load_tokenizer`.
        keep_accents: whether that vocabulary keeps accents; None: see `load_tokenizer`.
        depth: number of layers to run, if blocks are shared; 0: as many as the model has.
        other_tokenizer: whether `tokenizer` may differ from the model's own.
        revision: branch, tag or commit of a hub model; empty: the main branch.
        allow_pickle: whether weights may be a PyTorch pickle if there are no safetensors.
        labels: names of the classes, in order; they replace those in the files.

    Raises:
        UserError: the model cannot be found, downloaded or read at this depth, or `tokenizer` is not the model's own.

    >>> import tempfile
    >>> from albert_tf import AlbertClassifier, AlbertConfig
    >>> folder = Path(tempfile.mkdtemp())
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film"]
    >>> written = (folder / "vocab.txt").write_text(chr(10).join(pieces))
    >>> AlbertClassifier(AlbertConfig.named("albert_tiny"), 2, labels=["dull", "fine"]).save(folder / "model.keras")
    >>> answers = load(folder).predict(["a fine film", "a film"])
    >>> sorted(answers[0]), sorted(answers[0]["probabilities"])
    (['label', 'probabilities'], ['dull', 'fine'])
    """
    rules = lower_case, keep_accents
    optional = {"lower_case": lower_case, "keep_accents": keep_accents}
    check_truths(
        other_tokenizer=other_tokenizer,
        allow_pickle=allow_pickle,
        **{name: value for name, value in optional.items() if value is not None},
    )
    if depth != 0 or isinstance(depth, bool):
        check_counts(depth=depth)
    refuse({
        f"revision={revision!r} must be a branch, tag or commit":
            not isinstance(revision, str),
        "path='' is empty; give a folder, a file or a name":
            isinstance(path, str) and not path,
        f"tokenizer={tokenizer!r} must be a path, a name of the hub, or a loaded model's tokenizer":
            not isinstance(tokenizer, Given),
    })  # fmt: skip
    if is_preset(path) or not isinstance(path, (str, os.PathLike)):
        if revision:
            raise UserError(f"revision '{revision}' is for models of the hub by name; leave it out")
        loaded = _in_memory(path, tokenizer, depth, other_tokenizer, *rules)
    else:
        found = find_model(path, revision, allow_pickle)
        source = f"{path}@{revision}" if revision else str(path)
        loaded = _from_disk(found, tokenizer, rules, depth, other_tokenizer, source)
    if labels is not None:
        _set_labels(loaded, labels)
    return loaded


def _set_labels(loaded: Loaded, labels: Any) -> None:
    # A set has no order.
    if isinstance(labels, (str, dict, set, frozenset)) or not isinstance(labels, Iterable):
        raise UserError(f"labels={labels!r} is a {type(labels).__name__}; give a list of names")
    labels = list(labels)
    names = {str(label).strip() for label in labels if label is not None}
    refuse({
        f"labels={labels!r}: give each class a name of its own":
            "" in names or len(names) < len(labels),
        f"labels name classes, and the model is an {type(loaded.model).__name__}; leave them out":
            not isinstance(loaded.model, ClassesModel),
    })  # fmt: skip
    loaded.model.name_classes(loaded.model.num_classes, labels)
    loaded.task["labels"] = list(loaded.model.labels or ())


def _given(tokenizer: Given, *rules: bool | None) -> Tokenizer:
    if not isinstance(tokenizer, Tokenizer):
        return load_tokenizer(tokenizer, *rules)
    if rules != (None, None):
        raise UserError("lower_case and keep_accents are for a vocabulary's file, and tokenizer is one loaded already")
    return tokenizer


def _named(tokenizer: Given) -> str | os.PathLike:
    return "tokenizer=" if isinstance(tokenizer, Tokenizer) else tokenizer


def _in_memory(model: Any, tokenizer: Given, depth: int, other_tokenizer: bool, *rules: bool | None) -> Loaded:
    own = _given(tokenizer, *rules) if tokenizer else None
    task: dict[str, Any] = {}
    if not isinstance(model, (AlbertEncoder, EncoderModel)):
        # What few models need is imported for them alone.
        from albert_tf.checkpoints.keras_hub import read_task

        model, found, task = read_task(model)
        if own is not None and found is not None and not other_tokenizer:
            refuse_other(_named(tokenizer), "the model", difference(own, found))
        own = own or found
    model = _at_depth(model, depth)
    if own is not None:
        own = check_rows(model, own, _named(tokenizer) or "the model").with_cls_last(
            encoder_of(model).config.spec.last_token
        )
    return Loaded(model, own, task)


def _from_disk(
    path: Path,
    tokenizer: Given,
    rules: tuple[bool | None, bool | None],
    depth: int,
    other_tokenizer: bool,
    source: str,
) -> Loaded:
    folder = path if path.is_dir() else path.parent
    modules = read_modules(folder)
    inside = modules[0]["place"] if modules else folder
    model = formats.load(inside if modules and path.is_dir() else path)
    model = _at_depth(model, depth)
    said: dict[str, Any] = {}
    own: Tokenizer | None
    if tokenizer:
        own = _given(tokenizer, *rules)
    elif rules == (None, None) and (found := _of_keras_hub(inside)):
        own, said = found
    else:
        own = _tokenizer_beside(inside, *rules)
    if own is not None:
        own = check_rows(model, own, _named(tokenizer) or folder)
        if tokenizer and not other_tokenizer:
            check_own(model, own, _named(tokenizer), inside, *rules)
        own = own.with_cls_last(getattr(model, "encoder", model).config.spec.last_token)
    is_others = (inside / "config.json").is_file() and not (inside / MODEL_FILE).is_file()
    if path.is_dir() and is_others and (unknown := unknown_files(inside)):
        logging.warning("'%s' holds files that are not read: %s", inside, ", ".join(unknown))
    if is_of_sentence_transformers(folder):
        settings = read_settings(folder, inside)
    else:
        settings = {}
        _warn_of_limit(model, inside)
    # transformers' class without a head reads the encoder of a folder with one.
    if modules and isinstance(model, (AlbertEncoder, AlbertPretrainer)):
        model = make_embedder(model, folder, modules, settings)
    if default_prompt(settings) and not isinstance(model, (AlbertSentenceEmbedder, AlbertEncoder)):
        raise UserError(f"'{folder}' has a default_prompt_name, which is followed of embedders alone; remove it there")
    task = load_task(folder) or _named_classes(model, inside) | settings | said
    if isinstance(model, ClassesModel) and task.get("labels"):
        if model.labels and list(model.labels) != list(map(str, task["labels"])):
            logging.warning(
                "'%s' calls the classes %s, the model's own file %s; the former are taken; give labels=... for others",
                *(folder / TASK_FILE, ", ".join(map(str, task["labels"][:5])), ", ".join(model.labels[:5])),
            )
        model.name_classes(model.num_classes, task["labels"])
    return Loaded(model, own, task, source)


def _at_depth(model: keras.Model, depth: int) -> keras.Model:
    if not depth:
        return model
    from albert_tf.checkpoints.depth import at_depth

    return at_depth(model, depth)


def _of_keras_hub(folder: Path) -> tuple[Tokenizer | None, dict[str, Any]] | None:
    if not (folder / "metadata.json").is_file() or (folder / MODEL_FILE).is_file():
        return None
    from albert_tf.checkpoints.keras_hub import folder_preprocessor, read_preprocessor

    preprocessor = folder_preprocessor(folder)
    return None if preprocessor is None else read_preprocessor(preprocessor)


def _tokenizer_beside(folder: Path, *rules: bool | None) -> Tokenizer | None:
    try:
        return tokenizer_in(folder, *rules)
    except UnknownTokenizer as error:
        logging.warning("loaded without a tokenizer: %s", error)
        return None


def _warn_of_limit(model: keras.Model, folder: Path) -> None:
    limit, most = tokenizer_limit(folder), getattr(model, "encoder", model).config.max_seq_length
    if 0 < limit < most and isinstance(model, (ClassesModel, AlbertRegressor)):
        logging.warning(
            "'%s': model_max_length %d is not followed, as by transformers' pipelines, and rows have up to %d tokens;"
            " pass max_seq_length to cut texts as sentence-transformers does",
            *(folder / "tokenizer_config.json", limit, most),
        )


def _named_classes(model: keras.Model, folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    values = files.read_object(path) if isinstance(model, ClassesModel) else {}
    names = model.labels or class_names(values, path, model.num_classes) if values else None
    return {"labels": list(names)} if names else {}


def convert(source: str | os.PathLike, target: str | os.PathLike, to: str, **rows: int) -> keras.Model:
    """Writes a model in the format `to`, with its class names and tokenizer; returns the model.

    A sentence-transformers folder becomes an AlbertSentenceEmbedder. Only the format "keras" keeps pooling and task
    settings; other formats keep its encoder. `rows` are arguments of `for_long_rows`.
    """
    from albert_tf.checkpoints.resizing import for_long_rows

    loaded = load(source)
    if loaded.tokenizer is not None:
        formats.check_tokenizer_fits(loaded.tokenizer, target, to)
    model = for_long_rows(loaded.model, **rows)
    formats.save(model, target, to)
    path = Path(target).parent / TASK_FILE
    # The metrics were measured on the former rows.
    task = {name: value for name, value in loaded.task.items() if name != "metrics"}
    if to == "keras" and task and not path.exists():
        files.write_json(path, task)
    if loaded.tokenizer is not None:
        formats.save_tokenizer(loaded.tokenizer, target, to)
    return model
