import os
from pathlib import Path

import keras

from albert_tf.checkpoints.formats import check_tokenizer_fits, save, save_tokenizer
from albert_tf.checkpoints.resizing import for_long_rows
from albert_tf.loading.load import load
from albert_tf.loading.model_files import TASK_FILE
from tfrecords.base import files


def convert(source: str | os.PathLike, target: str | os.PathLike, to: str, **rows: int) -> keras.Model:
    """Writes a model in the format `to`, with its class names and tokenizer; returns the model.

    A sentence-transformers folder becomes an AlbertSentenceEmbedder. Only the format "keras" keeps pooling and task
    settings; other formats keep its encoder. `rows` are arguments of `for_long_rows`.
    """
    loaded = load(source)
    if loaded.tokenizer is not None:
        check_tokenizer_fits(loaded.tokenizer, target, to)
    model = for_long_rows(loaded.model, **rows)
    save(model, target, to)
    path = Path(target).parent / TASK_FILE
    # The metrics were measured on the former rows.
    task = {name: value for name, value in loaded.task.items() if name != "metrics"}
    if to == "keras" and task and not path.exists():
        files.write_json(path, task)
    if loaded.tokenizer is not None:
        save_tokenizer(loaded.tokenizer, target, to)
    return model
