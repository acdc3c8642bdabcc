"""Converts weights between code bases: `python -m albert_tf.convert_checkpoint --help`."""

import os
from pathlib import Path

import keras
from absl import flags, logging

from albert_tf.checkpoints.formats import FORMATS, load, save
from albert_tf.checkpoints.tokenizer_files import save_tokenizer
from albert_tf.loading import load_task
from albert_tf.models.classifiers import ClassesModel
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_next
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.published import tokenizer_in

FLAGS = flags.FLAGS


def convert(source: str | os.PathLike, target: str | os.PathLike, to: str, form: str | None = None) -> keras.Model:
    """Reads a model and writes it in another format, with the names of its classes and its tokenizer.

    Args:
        source: as `formats.load`.
        target: as `formats.save`.
        to, form: of `target` and `source`, in FORMATS; `form` is found from the files where None.

    Returns:
        The model.

    Raises:
        UserError: as `formats.load` and `formats.save`.
    """
    model = load(source, form)
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    # A preset's name is no place.
    is_place = form != "keras_hub" or Path(source).is_dir()
    labels = ((load_task(folder) if is_place else None) or {}).get("labels")
    if isinstance(model, ClassesModel) and labels:
        model.name_classes(model.num_classes, labels)
    tokenizer = _tokenizer(folder) if is_place else None
    save(model, target, to)
    if tokenizer is not None:
        save_tokenizer(tokenizer, target, to)
    return model


def _tokenizer(folder: Path) -> Tokenizer | None:
    try:
        return tokenizer_in(folder)
    except UserError as error:
        logging.warning("the tokenizer was not converted: %s", error)
        return None


def main() -> None:
    source, target = FLAGS["from"].value, FLAGS["to"].value
    model = convert(FLAGS.input, FLAGS.output, target, source)
    print(f"{type(model).__name__}, {model.count_params():,} parameters: {FLAGS.input} -> {FLAGS.output} ({target})")
    if target == "keras":
        say_next(f"python -m serving.export --model={FLAGS.output} --output_dir=servable")


def run() -> None:
    flags.DEFINE_enum("from", None, FORMATS, "Format of the input; found from the files where not given.")
    flags.DEFINE_enum("to", None, FORMATS, "Format of the output.", required=True)
    flags.DEFINE_string(
        "input", None, "Folder, checkpoint prefix or file; a preset's name for keras_hub.", required=True
    )
    flags.DEFINE_string("output", None, "Folder to write, or a .keras file for --to=keras.", required=True)
    run_main(main)


if __name__ == "__main__":
    run()
