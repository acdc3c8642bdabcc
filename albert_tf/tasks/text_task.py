import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor
from albert_tf.tasks.metrics import METRICS
from albert_tf.tasks.rows import FeatureRows, text_rows
from albert_tf.tasks.tables.data_file import MEND_COLUMNS, DataFile
from albert_tf.tasks.tables.folders import SUFFIXES, find_table
from albert_tf.tasks.tables.values import class_of, listed, number_of, text_of
from albert_tf.tasks.task import Hyperparameters, StreamedTask
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.tables import DataRow, Table, read_table, write_table
from tfrecords.tokenizers.base import Tokenizer


class TextExample(NamedTuple):
    """An example of one or two texts.

    `label` is a class number, a tuple of them (MultilabelTask) or a value (regression); `index` identifies the row.
    """

    texts: tuple[str, ...]
    label: int | float | tuple[int, ...] | None
    index: str | None = None


class SplitFile(NamedTuple):
    """The file of a split; `header` names the columns of a file without a header line."""

    stem: str
    header: tuple[str, ...] | None = None


def split_files(*splits: str) -> dict[str, SplitFile]:
    """Returns a SplitFile for each split; the file is named like the split."""
    return {split: SplitFile(split) for split in splits}


class TableTask(StreamedTask):
    """A task whose examples are the rows of tables."""

    data_dir: Path
    columns: tuple[str, ...]
    label_column: str
    splits: Mapping[str, SplitFile]
    skip_broken: bool = False
    published: bool = False
    data_file: DataFile | None = None

    def _path(self, split: str) -> Path | None:
        return find_table(self.data_dir, self.splits[split].stem, (".tsv",) if self.published else SUFFIXES)

    def stream(self, split: str) -> Iterator[Any] | None:
        labelled = split not in self.test_splits
        if self.data_file:
            table = self.data_file.table(split)
        else:
            path, header = self._path(split), self.splits[split].header
            table = path and read_table(path, header, self.skip_broken and labelled, self.published)
        if table is None:
            return None
        needed = (*self.columns, *[self.label_column] * labelled)
        table = table.require(needed) if self.published else table.require(needed, MEND_COLUMNS)
        return self._examples(table, labelled)

    @abc.abstractmethod
    def _examples(self, table: Table, labelled: bool) -> Iterator[Any]:
        """Yields the examples of a table."""


@dataclasses.dataclass(frozen=True)
class TextTask(TableTask):
    """Classification or regression of one or two texts in a table.

    Attributes:
        label_names: maps the file's class names to the model's, ordered by number; None for regression.
        metrics: names in METRICS; the first is the main one.
        submissions: for each test split, the name of a file for GLUE; the file has the training file's class names.
        no_label: label of examples to skip.
        index_column: column of test files' row identifiers.
        published: whether the files are GLUE's own, with unquoted cells and some empty texts.
    """

    name: str
    kind: str
    data_dir: Path
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    label_column: str
    label_names: Mapping[str, str] | None
    metrics: tuple[str, ...]
    defaults: Hyperparameters
    splits: Mapping[str, SplitFile] = dataclasses.field(default_factory=lambda: split_files("train", "dev", "test"))
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    range: tuple[float, float] | None = None
    no_label: str | None = None
    skip_broken: bool = False
    index_column: str | None = None
    published: bool = False
    data_file: DataFile | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        return None if self.label_names is None else tuple(self.label_names.values())

    @property
    def index_name(self) -> str:
        return "line" if self.data_file else "index"

    @property
    def main_metric(self) -> str:
        return self.metrics[0]

    def _examples(self, table: Table, labelled: bool) -> Iterator[TextExample]:
        count, lists = 0, []

        def example(row: DataRow) -> TextExample | None:
            if labelled and self.no_label is not None and row.values[self.label_column] == self.no_label:
                return None
            texts = tuple(text_of(row, column, takes_empty=self.published) for column in self.columns)
            lists.extend(row.line for text in texts if not self.published and listed(text) is not None)
            if not labelled:
                return TextExample(texts, None, row.values.get(self.index_column))
            return TextExample(texts, self._label(row), str(row.line) if self.data_file else None)

        for one in table.read(example):
            count += 1
            yield one
        if lists:
            what = (
                "'%s': %d texts are lists, the first in line %d; they are read with their brackets and quotation marks"
            )
            logging.warning(what, table.path, len(lists), lists[0])
        if not count:
            raise UserError(f"'{table.path}' holds no row with a label")

    def _label(self, row: DataRow) -> int | float:
        value = row.values[self.label_column]
        if self.label_names is None:
            return number_of(row, self.label_column, *self.range or ())
        name, names = class_of(row, self.label_column), list(self.label_names)
        if name not in self.label_names:
            # A header above a file that should have none, such as CoLA's.
            fix = "remove this line" if value == self.label_column else "fix the row"
            raise row.wrong(f"{self.label_column} {name!r} is none of {', '.join(names)}", fix)
        return names.index(name)

    def rows(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, max_seq_length: int, training: bool
    ) -> FeatureRows:
        texts = [[example.texts[i] for example in examples] for i in range(len(self.inputs))]
        rows = text_rows(tokenizer, texts, max_seq_length)
        if not training:
            return rows
        target, values = self._targets(examples)
        return dataclasses.replace(rows, values={target: values}, target=target)

    def _targets(self, examples: Sequence[TextExample]) -> tuple[str, np.ndarray]:
        return "label", np.array([example.label for example in examples], np.int32 if self.labels else np.float32)

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        if self.labels is None:
            return AlbertRegressor(encoder, dropout, early_exit)
        return AlbertClassifier(encoder, len(self.labels), dropout, early_exit)

    def compile_arguments(self) -> dict[str, Any]:
        return {} if self.labels else {"loss": "mse"}

    def score(
        self, examples: Sequence[TextExample], rows: FeatureRows, outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        labels = np.array([example.label for example in examples])
        predictions = self.predictions(outputs)
        return {name: METRICS[name](predictions, labels) for name in self.metrics}

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray]:
        values = labelled.values["label"]
        if self.labels is None:
            return f"always the mean, {values.mean():.4g}", np.array([values.mean()], np.float64)
        counts = np.bincount(values, minlength=len(self.labels))
        return f"always '{self.labels[counts.argmax()]}'", counts == counts.max()

    def predictions(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        values = np.asarray(outputs, np.float64)
        return values[:, 0] if self.labels is None else values.argmax(axis=-1)

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextExample],
        rows: FeatureRows,
        outputs: Sequence[np.ndarray],
    ) -> list[Path]:
        predictions, is_labelled = self.predictions(outputs), split not in self.test_splits
        header = [self.index_name, "prediction", *["label"] * is_labelled]
        header += [f"logit:{name}" for name in self.labels or ()]
        lines = []
        names = indices(examples)
        for index, example, prediction, output in zip(names, examples, predictions, outputs):
            answers = [prediction, *[example.label] * is_labelled]
            logits = output if self.labels else ()
            lines.append([index, *map(self._shown, answers), *(repr(float(logit)) for logit in logits)])
        written = [write_table(folder / f"{split}.tsv", header, lines)]
        if split in self.submissions:
            written.append(self._submit(folder, self.submissions[split], names, predictions))
        return written

    def _shown(self, value: int | float) -> str:
        return f"{value:.9g}" if self.labels is None else self.labels[int(value)]

    def _submit(self, folder: Path, name: str, indices: Sequence[str], predictions: np.ndarray) -> Path:
        if self.label_names is None:
            answers = [f"{value:.3f}" for value in np.clip(predictions, *self.range)]
        else:
            names = list(self.label_names)
            answers = [names[value] for value in predictions]
        path = files.make_output_dir(folder / "glue") / f"{name}.tsv"
        return write_table(path, ["index", "prediction"], list(zip(indices, answers)))


def indices(examples: Sequence[TextExample]) -> list[str]:
    """Returns the file's row identifiers, or else row numbers from 0."""
    return [str(number) if example.index is None else example.index for number, example in enumerate(examples)]
