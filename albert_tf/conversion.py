import os
from pathlib import Path

import keras
from absl import logging

from albert_tf.checkpoints.formats import check_tokenizer_fits, load, save, save_tokenizer
from albert_tf.checkpoints.long_rows import for_long_rows
from albert_tf.checkpoints.sentence_folders import MODULES
from albert_tf.hub import find_model
from albert_tf.loading import load as load_whole
from albert_tf.model_files import TASK_FILE, load_task
from albert_tf.models.classifiers import ClassesModel
from albert_tf.own_tokenizer import check_rows
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import tokenizer_in


def convert(
    source: str | os.PathLike, target: str | os.PathLike, to: str, form: str | None = None, **rows: int
) -> keras.Model:
    """Writes a model in the format `to`, with its class names and tokenizer; returns the model.

    A sentence-transformers folder becomes an AlbertSentenceEmbedder. Only the format "keras" keeps pooling and task
    settings; other formats keep its encoder. `form` is the format of `source`. `rows` are arguments of
    `long_rows.for_long_rows`.
    """
    source = source if form == "keras_hub" else find_model(source)
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    # A preset's name is no path.
    is_place = form != "keras_hub" or Path(source).is_dir()
    if (Path(source) / MODULES).is_file():
        loaded = load_whole(source)
        model, tokenizer, task = loaded.model, loaded.tokenizer, loaded.task
    else:
        model, tokenizer = load(source, form), _tokenizer(folder) if is_place else None
        task = (load_task(folder) if is_place else None) or {}
    if tokenizer is not None:
        check_rows(model, tokenizer, source)
        check_tokenizer_fits(tokenizer, target, to)
    model = for_long_rows(model, **rows)
    if isinstance(model, ClassesModel) and task.get("labels"):
        model.name_classes(model.num_classes, task["labels"])
    save(model, target, to)
    path = Path(target).parent / TASK_FILE
    if to == "keras" and task and not path.exists():
        # The metrics were measured on the former rows.
        files.write_json(path, {name: value for name, value in task.items() if name != "metrics"})
    if tokenizer is not None:
        save_tokenizer(tokenizer, target, to)
    return model


def _tokenizer(folder: Path) -> Tokenizer | None:
    try:
        return tokenizer_in(folder)
    except UserError as error:
        logging.warning("the tokenizer was not converted: %s", error)
        return None
