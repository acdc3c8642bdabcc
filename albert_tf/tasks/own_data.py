"""A user's own examples: any table with named columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_tf.tasks.multilabel import MultilabelTask, names_in
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables import SUFFIXES, Table, find_table, read_table
from albert_tf.tasks.tagging import TaggingTask
from albert_tf.tasks.task import Hyperparameters
from albert_tf.tasks.text_task import SplitFile, TextTask, class_of
from tfrecords.base.errors import UserError

# Ours, not the authors': a common start for fine-tuning a base model on some thousands of examples.
DEFAULTS = Hyperparameters(2e-5, 32, num_train_epochs=3.0, warmup_proportion=0.1)

_STEMS = {"train": ("train",), "dev": ("dev", "validation", "valid", "eval"), "test": ("test",)}
_MEND_COLUMNS = "say which is meant by --text_column, --second_text_column, --label_column"


def classification_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> TextTask:
    """Makes a task of classes: those of `trained`, or of the training file, numbers by value and the rest by alphabet.

    Args:
        settings: that name the files and columns.
        trained: task.json of a model that is to answer, where none is to be trained; likewise below.

    Raises:
        UserError: there is no training file, or its labels are no classes.
    """
    names = _classes(settings) if trained is None else trained["labels"] or ()
    return _text_task(settings, "classification", {name: name for name in names}, ("accuracy", "macro_f1"), trained)


def regression_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> TextTask:
    """Makes a task of numbers."""
    return _text_task(settings, "regression", None, ("pearson", "spearman", "mean_squared_error"), trained)


def multilabel_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> TextTask:
    """Makes a task of lists of labels: those of `trained`, or of the training file, by alphabet."""
    if trained is None:
        names = names_in(_training_table(settings), settings.label_column)
    else:
        names = {name: name for name in trained["labels"] or ()}
    return _text_task(settings, "multilabel", names, ("macro_f1", "micro_f1"), trained, MultilabelTask)


def tagging_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> TaggingTask:
    """Makes a task of words with tags. Raises UserError where a second text is named."""
    if settings.second_text_column:
        raise UserError("--task=tagging takes one text; leave out --second_text_column")
    known = None if trained is None else tuple(trained["labels"] or ())
    columns = (settings.text_column, settings.label_column)
    return TaggingTask(Path(settings.data_dir), *columns, _files(settings, trained), DEFAULTS, known)


def _text_task(
    settings: FinetuningSettings,
    kind: str,
    label_names: Mapping[str, str] | None,
    metrics: tuple[str, ...],
    trained: Mapping[str, Any] | None,
    make: type[TextTask] = TextTask,
) -> TextTask:
    columns = tuple(name for name in (settings.text_column, settings.second_text_column) if name)
    if len(set(columns)) < len(columns):
        raise UserError(f"--second_text_column={settings.second_text_column} is --text_column too; name another")
    return make(
        name=settings.task,
        kind=kind,
        data_dir=Path(settings.data_dir),
        inputs=columns,
        columns=columns,
        label_column=settings.label_column,
        label_names=label_names,
        metrics=metrics,
        defaults=DEFAULTS,
        splits=_files(settings, trained),
        mend_columns=_MEND_COLUMNS,
    )


def _files(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> dict[str, SplitFile]:
    """The name that each split goes by in the folder."""
    folder = Path(settings.data_dir)
    stems = {split: [stem for stem in names if find_table(folder, stem)] for split, names in _STEMS.items()}
    for names in stems.values():
        if len(names) > 1:
            raise UserError(f"'{folder}' holds files named {' and '.join(names)}; keep the one that is meant")
    if not (stems["train"] or trained):
        other = ", ".join(sorted(path.name for path in folder.glob("train*") if path.is_file()))
        raise UserError(
            f"'{folder}' holds no train file ending in {', '.join(SUFFIXES)}, or in one of them and .gz"
            + f"; it holds {other}" * bool(other)
        )
    return {split: SplitFile(names[0] if names else split) for split, names in stems.items()}


def _classes(settings: FinetuningSettings) -> list[str]:
    table = _training_table(settings)
    labels, rows = set(), 0
    for row in table.rows:
        rows += 1
        label = class_of(table, row, settings.label_column)
        if not label.strip():
            raise table.wrong(row, f"{settings.label_column} is empty", "fill it or remove the row")
        labels.add(label)
    if len(labels) == 1 or len(labels) == rows:
        what = "every row has the same" if len(labels) == 1 else "no two rows have the same"
        raise UserError(
            f"'{table.path}': {what} {settings.label_column}; is another column or --task=regression meant?"
        )
    return sorted(labels, key=lambda label: (not _is_whole(label), int(label) if _is_whole(label) else 0, label))


def _training_table(settings: FinetuningSettings) -> Table:
    table = read_table(find_table(Path(settings.data_dir), _files(settings)["train"].stem))
    return table.require([settings.label_column], _MEND_COLUMNS)


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal()
