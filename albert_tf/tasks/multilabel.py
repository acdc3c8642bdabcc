"""Texts with any number of labels."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier
from albert_tf.models.early_exit import LearnedExit
from albert_tf.tasks.metrics import f1
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables import DataRow, Table, write_table
from albert_tf.tasks.text_task import TextExample, TextTask, indices
from albert_tf.tasks.values import labels_of

# A label is predicted if its probability is above.
THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True)
class MultilabelTask(TextTask):
    """Classification with any number of labels for a text, given as lists of names; [] for none."""

    def _label(self, table: Table, row: DataRow) -> tuple[int, ...]:
        names = labels_of(table, row, self.label_column)
        if unknown := [name for name in names if name not in self.label_names]:
            known = ", ".join(self.label_names)
            raise table.wrong(row, f"label '{unknown[0]}' is none of those trained on: {known}")
        return tuple(sorted(list(self.label_names).index(name) for name in names))

    def _targets(self, examples: Sequence[TextExample]) -> tuple[str, np.ndarray]:
        return "labels", self.indicators(examples)

    def indicators(self, examples: Sequence[TextExample]) -> np.ndarray:
        values = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in zip(values, examples):
            row[list(example.label)] = 1
        return values

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool | LearnedExit) -> keras.Model:
        return AlbertClassifier(encoder, len(self.labels), dropout, early_exit, multi_label=True)

    def score(
        self, examples: Sequence[TextExample], rows: FeatureRows, outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        given, expected = self.predictions(outputs), self.indicators(examples)
        of_labels = [f1(*columns) for columns in zip(given.T, expected.T)]
        return {"macro_f1": float(np.mean(of_labels)), "micro_f1": f1(given.ravel(), expected.ravel())}

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray]:
        shares = labelled.values["labels"].mean(axis=0)
        names = ", ".join(f"'{name}'" for name, share in zip(self.labels, shares) if share > THRESHOLD)
        return f"always {names or 'no label'}", np.where(shares > THRESHOLD, np.inf, -np.inf)

    def predictions(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(outputs, np.float64) > np.log(THRESHOLD / (1 - THRESHOLD))

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextExample],
        rows: FeatureRows,
        outputs: Sequence[np.ndarray],
    ) -> list[Path]:
        is_labelled = split not in self.test_splits
        header = [self.index_name, "prediction", *["label"] * is_labelled, *(f"logit:{name}" for name in self.labels)]
        lines = []
        for index, example, given, logits in zip(indices(examples), examples, self.predictions(outputs), outputs):
            labels = [np.flatnonzero(given), *[example.label] * is_labelled]
            names = [json.dumps([self.labels[one] for one in numbers], ensure_ascii=False) for numbers in labels]
            lines.append([index, *names, *(repr(float(logit)) for logit in logits)])
        return [write_table(folder / f"{split}.tsv", header, lines)]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"threshold": THRESHOLD}
