"""A trained model as a folder: `model.keras`, `config.json` and the tokenizer it was trained with.

A fine-tuned one also has `task.json`: task, kind, labels, inputs, max_seq_length, metrics, null_threshold.
"""

import os

import keras

from albert_tf import loading
from albert_tf.checkpoints.formats import load_keras as load_model
from albert_tf.loading import TASK_FILE, load_task
from tfrecords.base import files
from tfrecords.tokenizers.base import Tokenizer

__all__ = [
    "MODEL_FILE",
    "TASK_FILE",
    "load_model",
    "load_model_folder",
    "load_task",
    "save_for_inference",
    "save_model",
]

MODEL_FILE = "model.keras"


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes a `.keras` file, whole or not at all."""
    with files.replacing(path) as temporary:
        model.save(temporary)


def save_for_inference(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes the model without its optimizer, which would triple the file."""
    bare = model.__class__.from_config(model.get_config())
    bare.set_weights(model.get_weights())
    save_model(bare, path)


def load_model_folder(path: str | os.PathLike) -> tuple[keras.Model, Tokenizer | None]:
    """Loads the model of a folder, or of a `.keras` file in one, and the tokenizer beside it if there is one."""
    loaded = loading.load(path)
    return loaded.model, loaded.tokenizer
