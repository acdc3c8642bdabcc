"""Converts weights between file formats.

python -m albert_tf.convert_checkpoint --input=albert_base --to=keras --output=base.keras
python -m albert_tf.convert_checkpoint --input=run --to=huggingface --output=hf_folder
"""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from albert_tf.choices import ALLOW_PICKLE_HELP, FORMATS
from albert_tf.hub import check_model, find_model
from albert_tf.model_files import TASK_FILE, load_task
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main, say_export
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertSettings(CheckedSettings):
    """The command's flags."""

    input: str = setting(help="Folder, checkpoint prefix or file; a preset's name for keras_hub.")
    output: str = setting(help="Folder to write, or a .keras file for --to=keras.")
    to: str = setting(help="Format of the output.", choices=FORMATS)
    form: str | None = setting(
        None, help="Format of the input; left out: found from the files.", choices=FORMATS, flag="from"
    )
    max_positions: int = setting(
        0,
        help="Longest row in tokens: learned positions are repeated beyond the last, or cut; 0: unchanged.",
        at_least=0,
    )
    attention_window: int = setting(
        0,
        help="Tokens on each side that a token attends to, for long rows (docs/guide/long_documents.md); 0: all.",
        at_least=0,
    )
    allow_pickle: bool = setting(False, help=ALLOW_PICKLE_HELP)
    global_attention_every: int = setting(
        0, help="With --attention_window: every this many steps attend to all tokens; 0: none.", at_least=0
    )


def convert(
    source: str | os.PathLike, target: str | os.PathLike, to: str, form: str | None = None, **rows: int
) -> "keras.Model":
    """Reads a model and writes it in another format, with class names, tokenizer and task; returns the model.

    A sentence-transformers folder becomes an AlbertSentenceEmbedder, which only Keras's format keeps whole; others keep
    its encoder. `rows` are arguments of `long_rows.for_long_rows`.
    """
    from albert_tf import loading
    from albert_tf.checkpoints.formats import check_tokenizer_fits, load, save, save_tokenizer
    from albert_tf.checkpoints.long_rows import for_long_rows
    from albert_tf.checkpoints.sentence_folders import MODULES
    from albert_tf.models.classifiers import ClassesModel
    from albert_tf.own_tokenizer import check_rows

    source = source if form == "keras_hub" else find_model(source)
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    # A preset's name is no path.
    is_place = form != "keras_hub" or Path(source).is_dir()
    if (Path(source) / MODULES).is_file():
        loaded = loading.load(source)
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
    from tfrecords.tokenizers.loading import tokenizer_in

    try:
        return tokenizer_in(folder)
    except UserError as error:
        logging.warning("the tokenizer was not converted: %s", error)
        return None


def main(settings: ConvertSettings) -> None:
    """Converts as the flags specify."""
    if Path(settings.output).resolve() == Path(settings.input).resolve():
        raise UserError(f"--output={settings.output} is --input, whose files would be replaced; choose another")
    if settings.form != "keras_hub":  # It may be a preset's name.
        check_model(settings.input, settings.allow_pickle)
    import tfrecords.base.quiet_tensorflow  # noqa: F401  (first of all)

    rows = {
        "count": settings.max_positions,
        "attention_window": settings.attention_window,
        "global_attention_every": settings.global_attention_every,
    }
    model = convert(settings.input, settings.output, settings.to, settings.form, **rows)
    size = f"{type(model).__name__}, {model.count_params():,} parameters"
    print(f"{size}: {settings.input} -> {settings.output} ({settings.to})")
    if settings.to == "keras":
        say_export(settings.output)


def run() -> None:
    """Runs the command."""
    run_main(main, ConvertSettings)


if __name__ == "__main__":
    run()
