"""The files of a trained model by the names that training knows; see `checkpoints.formats` and `loading`."""

import os

import keras

from albert_tf import loading
from albert_tf.checkpoints.formats import MODEL_FILE, save_keras
from albert_tf.checkpoints.formats import load_keras as load_model
from albert_tf.checkpoints.formats import save_keras as save_model
from albert_tf.loading import TASK_FILE, load_task
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


def save_for_inference(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes the model without its optimizer."""
    save_keras(model, path, optimizer=False)


def load_model_folder(path: str | os.PathLike) -> tuple[keras.Model, Tokenizer | None]:
    """Loads the model of a folder, or of a `.keras` file in one, and the tokenizer beside it if there is one."""
    loaded = loading.load(path)
    return loaded.model, loaded.tokenizer
