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

# A label is predicted if its probability is above, unless training found another threshold for it.
THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True)
class MultilabelTask(TextTask):
    """Multi-label classification: the labels of a text are a list of names, perhaps empty.

    `threshold`: the probability above which a label is predicted, one for all labels or one for each.
    """

    threshold: float | Sequence[float] = THRESHOLD

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

    def _choices(self, example: TextExample, output: np.ndarray) -> tuple[np.ndarray, ...]:
        # No and yes of each label.
        return np.stack([0 * output, output], axis=-1), self.indicators([example])[0].astype(int)

    def predictions(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        threshold = np.array(self.threshold)
        return np.asarray(outputs, np.float64) > np.log(threshold / (1 - threshold))

    def _shown(self, value: np.ndarray | tuple[int, ...]) -> str:
        numbers = np.flatnonzero(value) if isinstance(value, np.ndarray) else value
        return json.dumps([self.labels[one] for one in numbers], ensure_ascii=False)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"threshold": self.threshold}
