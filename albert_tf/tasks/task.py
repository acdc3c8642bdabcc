import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.tasks.rows import FeatureRows
from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """A task's default hyperparameters; either steps or epochs are set."""

    learning_rate: float
    train_batch_size: int
    num_train_steps: int = 0
    num_train_epochs: float = 0.0
    num_warmup_steps: int = 0
    warmup_proportion: float = 0.0
    max_seq_length: int = 512
    albert_dropout: float = 0.0
    classifier_dropout: float = 0.1


class Task(abc.ABC):
    """A fine-tuning task: reads its files, makes features, builds a model, scores and writes predictions.

    Attributes:
        kind: "classification", "multilabel", "regression", "spans", "multiple_choice", "tagging" or "pairs".
        inputs: names of an example's texts, as a client sends them.
        keeps_head: whether training keeps the head of --init_from.
        main_metric: the key of `score` that selects the best checkpoint; higher is better.
        test_splits: splits to predict after training.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    labels: tuple[str, ...] | None
    main_metric: str
    defaults: Hyperparameters
    needs_pooler: bool = True
    keeps_head: bool = False
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    def begun_from(self, model: keras.Model | None, task: Mapping[str, Any]) -> "Task":
        """Returns the task, with what it takes over from the initial model and its task.json."""
        return self

    def saved(self, model: keras.Model) -> keras.Model:
        return model

    def answering(self, model: keras.Model) -> keras.Model:
        return model

    @abc.abstractmethod
    def read(self, split: str) -> list[Any] | None:
        """Reads the examples of a split; None without a file."""

    # Yields, so that files may exceed memory.
    def stream(self, split: str) -> Iterable[Any] | None:
        return self.read(split)

    @abc.abstractmethod
    def rows(self, examples: Sequence[Any], tokenizer: Tokenizer, max_seq_length: int, training: bool) -> FeatureRows:
        """Makes features from a part of the examples, with labels if `training`."""

    @abc.abstractmethod
    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool) -> keras.Model:
        """Puts a new head on the encoder; with `early_exit`, a head for every depth step."""

    def compile_arguments(self) -> dict[str, Any]:
        return {}

    @abc.abstractmethod
    def score(self, examples: Sequence[Any], rows: FeatureRows, outputs: Sequence[Any]) -> dict[str, float]:
        """Returns metrics by name."""

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray] | None:
        """Returns the best constant answer, as text and as model output, or None."""
        return None

    @abc.abstractmethod
    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Any], rows: FeatureRows, outputs: Sequence[Any]
    ) -> list[Path]:
        """Writes a split's predictions and returns the files."""

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "kind": self.kind,
            "labels": None if self.labels is None else list(self.labels),
            "inputs": list(self.inputs),
            "null_threshold": None,
        }


class StreamedTask(Task):
    """A task that defines `stream` instead of `read`."""

    def read(self, split: str) -> list[Any] | None:
        examples = self.stream(split)
        return None if examples is None else list(examples)
