import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier
from albert_tf.tasks.metrics import of_labels
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.values import check_known, labels_of
from albert_tf.tasks.text_task import TextExample, TextTask
from tfrecords.base.tables import DataRow

# A label is predicted if its probability is above.
THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True)
class MultilabelTask(TextTask):
    """Multi-label classification: the labels of a text are a list of names, perhaps empty."""

    def _label(self, row: DataRow) -> tuple[int, ...]:
        names = labels_of(row, self.label_column)
        check_known(row, "label", names, self.label_names)
        return tuple(sorted(list(self.label_names).index(name) for name in names))

    def _targets(self, examples: Sequence[TextExample]) -> tuple[str, np.ndarray]:
        return "labels", self.indicators(examples)

    def indicators(self, examples: Sequence[TextExample]) -> np.ndarray:
        values = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in zip(values, examples):
            row[list(example.label)] = 1
        return values

    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        return AlbertClassifier(encoder, len(self.labels), dropout, early_exit, multi_label=True)

    def score(
        self, examples: Sequence[TextExample], rows: FeatureRows, outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        return of_labels(self.predictions(outputs), self.indicators(examples))

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray]:
        shares = labelled.values["labels"].mean(axis=0)
        names = ", ".join(f"'{name}'" for name, share in zip(self.labels, shares) if share > THRESHOLD)
        return f"always {names or 'no label'}", np.where(shares > THRESHOLD, np.inf, -np.inf)

    def predictions(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(outputs, np.float64) > np.log(THRESHOLD / (1 - THRESHOLD))

    def _shown(self, value: np.ndarray | tuple[int, ...]) -> str:
        numbers = np.flatnonzero(value) if isinstance(value, np.ndarray) else value
        return json.dumps([self.labels[one] for one in numbers], ensure_ascii=False)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"threshold": THRESHOLD}
