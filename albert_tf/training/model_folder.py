"""A trained model as a folder: `model.keras`, `config.json` and the tokenizer it was trained with.

A fine-tuned one also has `task.json`: task, kind, labels, inputs, max_seq_length, metrics, null_threshold.
"""

import os
from pathlib import Path
from typing import Any

import keras

from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.tokenizer import Tokenizer, load_tokenizer

MODEL_FILE = "model.keras"
TASK_FILE = "task.json"


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes a `.keras` file, whole or not at all."""
    with files.replacing(path) as temporary:
        model.save(temporary)


def save_for_inference(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes the model without its optimizer, which would triple the file."""
    bare = model.__class__.from_config(model.get_config())
    bare.set_weights(model.get_weights())
    save_model(bare, path)


def load_model(path: str | os.PathLike, compile: bool = False) -> keras.Model:
    """Loads a `.keras` file.

    Raises:
        UserError: when the file is missing, damaged, or holds something else.
    """
    if not Path(path).is_file():
        raise UserError(f"no model at '{path}'; expected a .keras file or a folder that training wrote")
    try:
        return keras.saving.load_model(path, compile=compile)
    except Exception as error:  # Keras raises whatever its zip, JSON and HDF5 readers raise.
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"'{path}' is not a model this version can load: {reason}") from error


def load_model_folder(path: str | os.PathLike) -> tuple[keras.Model, Tokenizer | None]:
    """Loads the model of a folder, or of a `.keras` file in one, and the tokenizer beside it if there is one."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    model = load_model(folder / MODEL_FILE if path.is_dir() else path)
    if not hasattr(model, "encoder"):
        raise UserError(f"'{path}' holds a {type(model).__name__}, not a model of this library")
    tokenizer = load_tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
    if tokenizer is not None and tokenizer.vocab_size > model.encoder.config.vocab_size:
        raise UserError(
            f"the tokenizer in '{folder}' has {tokenizer.vocab_size} pieces, "
            f"the model only {model.encoder.config.vocab_size}; they do not belong together"
        )
    return model, tokenizer


def load_task(path: str | os.PathLike) -> dict[str, Any] | None:
    """The task.json of a model folder, or beside a `.keras` file; None where there is none."""
    path = Path(path)
    file = (path if path.is_dir() else path.parent) / TASK_FILE
    return files.read_json(file) if file.is_file() else None
