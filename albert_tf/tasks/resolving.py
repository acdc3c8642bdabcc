"""Detection of a task and its columns in a user's tables."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_tf.choices import OWN_KINDS
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.data_file import (
    DataFile,
    FileOptions,
    check_columns,
    columns_of,
    open_data_file,
)
from albert_tf.tasks.tables.folders import find_table, train_file
from tfrecords.base.errors import UserError

if TYPE_CHECKING:
    from albert_tf.tasks.tables.pair_file import PairData


def resolve_data(
    settings: FinetuningSettings, trained: Mapping[str, Any] | None = None
) -> tuple[FinetuningSettings, "DataFile | PairData | None"]:
    """Returns the settings with task and columns filled in, and the opened --data_file, if any."""
    if settings.task == "pairs" and trained is None:
        from albert_tf.tasks.tables.pair_file import open_pairs

        pairs = open_pairs(settings)
        return dataclasses.replace(settings, loss=pairs.loss), pairs
    if settings.task not in ("", *OWN_KINDS):
        if settings.data_file:
            raise UserError(
                f"--data_file={settings.data_file} is for {', '.join(OWN_KINDS)} and pairs; give "
                f"--task={settings.task} the folder of its files by --data_dir"
            )
        return _with_usual_columns(settings), None
    if settings.task == "tagging" and settings.second_text_column:
        raise UserError("--task=tagging takes one text; leave out --second_text_column")
    if not settings.data_file:
        found = _resolved_folder(settings)
        check_columns(found.text_column, found.second_text_column, found.label_column)
        return found, None
    options = FileOptions.of(settings)
    if trained is not None:
        options = dataclasses.replace(options, dev_fraction=1.0, known=tuple(trained["labels"] or ()))
    data_file = open_data_file(options)
    return _filled_in(settings, data_file), data_file


def _with_usual_columns(settings: FinetuningSettings) -> FinetuningSettings:
    columns = {"text_column": settings.text_column or "text", "label_column": settings.label_column or "label"}
    return dataclasses.replace(settings, **columns)


def _resolved_folder(settings: FinetuningSettings) -> FinetuningSettings:
    if settings.task and settings.text_column and settings.label_column:
        return settings
    folder = Path(settings.data_dir)
    path = find_table(folder, "train") if settings.task else train_file(folder)
    if path is None:
        # A model predicts, and each file is compared with these names.
        return _with_usual_columns(settings)
    return _filled_in(settings, open_train_file(settings, path))


def open_train_file(settings: FinetuningSettings, path: Path) -> DataFile:
    """Opens the training file of a folder."""
    # A folder's files have no flag for their encoding, and no rows of them are held out.
    return open_data_file(
        dataclasses.replace(FileOptions.of(settings), path=str(path), encoding=None, dev_fraction=0.0)
    )


def _filled_in(settings: FinetuningSettings, data_file: DataFile) -> FinetuningSettings:
    names = ("task", "text_column", "label_column")
    return dataclasses.replace(settings, **{name: getattr(data_file.options, name) for name in names})


def open_labelled_file(options: FileOptions, trained: Mapping[str, Any], label_column: str = "") -> DataFile:
    """Opens a file of labelled rows for a trained model; columns default to the model's."""
    columns, inputs = columns_of(options), list(trained.get("inputs") or ())
    if len(inputs) == 1 and options.second_text_column:
        raise UserError(
            f"--second_text_column={options.second_text_column}: the model was trained on single texts; leave it out"
        )
    changes = {}
    for name, column in zip(("text_column", "second_text_column"), inputs):
        # A single text may have another name here; a pair would be ambiguous.
        if not getattr(options, name) and (column in columns or len(inputs) == 2):
            changes[name] = column
    if not options.label_column and label_column in columns:
        changes["label_column"] = label_column
    return open_data_file(dataclasses.replace(options, **changes))
