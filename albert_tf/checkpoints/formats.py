"""Every checkpoint format by name, and how to tell which one a path holds."""

import os
from pathlib import Path

import keras

from albert_tf.checkpoints.huggingface import load_huggingface, save_huggingface, weights_file
from albert_tf.checkpoints.keras_hub import load_keras_hub, save_keras_hub
from albert_tf.checkpoints.official import load_official, save_official
from albert_tf.checkpoints.reason import reason
from tfrecords.base.errors import UserError
from tfrecords.base.files import download_hint, replacing

FORMATS = ("official", "huggingface", "keras_hub", "keras")


def detect(path: str | os.PathLike) -> str:
    """The format of the checkpoint at `path`.

    Raises:
        UserError: there is none.
    """
    path = Path(path)
    if path.suffix == ".keras" or (path / "model.keras").is_file():
        return "keras"
    if path.suffix in (".safetensors", ".bin") or weights_file(path).is_file():
        return "huggingface"
    if (path / "model.weights.h5").is_file():
        return "keras_hub"
    if path.suffix == ".index" or Path(f"{path}.index").is_file() or any(path.glob("*.index")):
        return "official"
    _check_is_here(path)
    raise UserError(
        f"no model at '{path}'; expected a .keras file, a TensorFlow checkpoint's prefix, or a folder with"
        " model.keras, model.safetensors, pytorch_model.bin, model.weights.h5 or one TensorFlow checkpoint"
    )


def load(path: str | os.PathLike, form: str | None = None) -> keras.Model:
    """The model that `path` holds, in the format given or found.

    Raises:
        UserError: as the loader of the format.
    """
    form = form or detect(path)
    if form == "huggingface":
        _check_is_here(path)
    loaders = {"official": load_official, "huggingface": load_huggingface, "keras_hub": load_keras_hub}
    return loaders[form](path) if form != "keras" else load_keras(path)


def _check_is_here(path: str | os.PathLike) -> None:
    """Raises UserError where `path` is the name of something to be downloaded."""
    if hint := download_hint(path):
        raise UserError(f"there is no folder '{path}'; {hint}")


def save(model: keras.Model, path: str | os.PathLike, form: str) -> None:
    """Writes a folder, or for "keras" a .keras file.

    Raises:
        UserError: the model has no form there, or the place cannot be written.
    """
    savers = {"official": save_official, "huggingface": save_huggingface, "keras_hub": save_keras_hub}
    if form != "keras":
        savers[form](model, path)
        return
    if Path(path).suffix != ".keras":
        raise UserError(f"a Keras model's file must end in .keras, not '{path}'")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            model.save(temporary)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}; choose another") from error


def load_keras(path: str | os.PathLike, compile: bool = False) -> keras.Model:
    """Loads a model of this package from a .keras file, or from a folder's model.keras.

    compile: whether with the optimizer and its state, to train on.

    Raises:
        UserError: it cannot be read, or is no model of this package.
    """
    file = Path(path) / "model.keras" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UserError(f"no Keras model '{file}'; give a .keras file or a folder that training wrote")
    try:
        model = keras.saving.load_model(file, compile=compile)
    except Exception as error:
        # Keras raises whatever the damaged part does: zip, JSON, HDF5, type and value errors.
        raise UserError(f"cannot read '{file}' as a Keras model: {reason(error)}") from error
    if not type(model).__module__.startswith("albert_tf."):
        raise UserError(f"'{file}' holds a {type(model).__name__}, which is no model of this package")
    return model
