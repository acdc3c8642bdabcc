from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert_tf.tasks.metrics import OF_KIND
from albert_tf.tasks.resolving import open_train_file, resolve_data
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.data_file import DataFile
from albert_tf.tasks.tables.folders import OWN_STEMS, own_stems, train_file
from albert_tf.tasks.task import Hyperparameters, Task
from albert_tf.tasks.text_task import SplitFile, TextTask

# Ours, not the authors': a common start for fine-tuning a base model on some thousands of examples.
DEFAULTS = Hyperparameters(2e-5, 32, num_train_epochs=3.0, warmup_proportion=0.1)


def own_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> Task:
    """Makes the task for a user's own data.

    Labels come from `trained`, a model's task.json; without it, from the training file.
    """
    settings, data_file = resolve_data(settings, trained)
    if data_file:
        return file_task(data_file)
    folder = Path(settings.data_dir)
    labels = open_train_file(settings, train_file(folder)).labels if trained is None else trained["labels"]
    stems = own_stems(folder)
    splits = {split: SplitFile(stems.get(split, split)) for split in OWN_STEMS}
    columns = tuple(filter(None, (settings.text_column, settings.second_text_column)))
    return _make(settings.task, columns, settings.label_column, tuple(labels or ()), folder, splits, None)


def file_task(data_file: DataFile, label_names: Mapping[str, str] | None = None) -> Task:
    """Makes the task for a file; `label_names` maps the file's class names to the model's."""
    options, labels = data_file.options, label_names or tuple(data_file.labels)
    return _make(options.task, options.texts, options.label_column, labels, Path(options.path).parent, {}, data_file)


def _make(
    kind: str,
    columns: tuple[str, ...],
    label_column: str,
    labels: Sequence[str] | Mapping[str, str],
    folder: Path,
    splits: dict[str, SplitFile],
    data_file: DataFile | None,
) -> Task:
    names = labels if isinstance(labels, Mapping) else {name: name for name in labels}
    if kind == "tagging":
        from albert_tf.tasks.tagging import TaggingTask

        return TaggingTask(folder, columns[0], label_column, splits, DEFAULTS, tuple(names), data_file)
    make = TextTask
    if kind == "multilabel":
        from albert_tf.tasks.multilabel import MultilabelTask as make
    return make(
        name=kind,
        kind=kind,
        data_dir=folder,
        inputs=columns,
        columns=columns,
        label_column=label_column,
        label_names=None if kind == "regression" else names,
        metrics=OF_KIND[kind],
        defaults=DEFAULTS,
        splits=splits,
        data_file=data_file,
    )
