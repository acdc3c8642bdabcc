"""Writes a trained model as a SavedModel version for TensorFlow Serving: `python -m serving.export --help`."""

import tfrecords.quiet_tensorflow  # noqa: F401, I001  (first of all)

import dataclasses
import os
import shutil
from pathlib import Path

import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.training.model_folder import load_model_folder
from serving.servables import IdsServable, TextServable
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.script import run_main
from tfrecords.settings import define_flags, read_flags, setting


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    model: str = setting(help="folder that training wrote, or a .keras file in one")
    output_dir: str = setting(help="base path of the servable; the version becomes a numbered folder in it")
    inputs: str = setting("ids", help="ids (token ids and lengths) or text (strings, tokenized in the graph)")
    version: int = setting(0, help="version number; 0 means the next free one")
    max_seq_length: int = setting(0, help="longest input in tokens; 0 means all the positions that the model has")


def export(settings: ExportSettings) -> Path:
    """Writes `output_dir/version` and returns it. A polling server never sees half a version.

    Raises:
        UserError: for a model without the head or tokenizer that the servable needs, an impossible length, or a
            version that exists.
    """
    if settings.version < 0:
        raise UserError(f"--version={settings.version} must be a positive number, or 0 for the next free one")
    model, tokenizer = load_model_folder(settings.model)
    servable = _servable(settings, model, tokenizer)
    base = files.make_output_dir(settings.output_dir)
    version = settings.version or max(_versions(base), default=0) + 1
    target = base / str(version)
    if target.exists():
        raise UserError(f"version {version} exists in '{base}'; leave out --version for the next free one")
    # A name that is not a number: servers polling the base path pass over it.
    temporary = base / f".writing-{version}-{os.getpid()}"
    try:
        save(servable, temporary)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def save(servable: tf.Module, path: Path) -> None:
    """Saves a servable with its signatures."""
    signatures = {
        name: tf.function(function).get_concrete_function(**inputs)
        for name, (function, inputs) in servable.signatures().items()
    }
    tf.saved_model.save(servable, str(path), signatures=signatures)


def _servable(settings: ExportSettings, model, tokenizer) -> tf.Module:
    limit = model.encoder.config.max_position_embeddings
    length = settings.max_seq_length or limit
    if not 3 <= length <= limit:
        raise UserError(f"--max_seq_length={length} must be from 3 to the model's max_position_embeddings={limit}")
    if not isinstance(model, AlbertPretrainer):
        raise UserError(f"'{settings.model}' holds a {type(model).__name__}; only an AlbertPretrainer can be exported")
    if settings.inputs == "ids":
        return IdsServable(model, length)
    if settings.inputs != "text":
        raise UserError(f"--inputs={settings.inputs} is unknown; choose ids or text")
    if tokenizer is None:
        raise UserError(
            f"--inputs=text needs the tokenizer beside the model, and '{settings.model}' has no tokenizer.json"
        )
    return TextServable(model, length, tokenizer)


def _versions(base: Path) -> list[int]:
    return [int(path.name) for path in base.iterdir() if path.name.isdigit()]


def main() -> None:
    target = export(read_flags(ExportSettings))
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"exported {target} ({size / 1e6:.1f} MB)")


def run() -> None:
    define_flags(ExportSettings)
    run_main(main)


if __name__ == "__main__":
    run()
