"""What fine-tuning asks of a task."""

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.early_exit import LearnedExit
from albert_tf.tasks.rows import FeatureRows
from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What a task is trained with unless told otherwise; of steps and epochs one is given.

    Attributes:
        albert_dropout: of the encoder's hidden states and attention.
    """

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
    """One thing to learn: reads its files, makes features, builds a model, scores and writes down its answers.

    Attributes:
        name: as --task names it.
        kind: "classification", "multilabel", "regression", "spans", "multiple_choice" or "tagging".
        inputs: names of the texts an example consists of, as a client will send them.
        labels: names of the classes by number, or None.
        main_metric: the key of `score` by which the best checkpoint is chosen; higher is better.
        defaults: Hyperparameters.
        needs_pooler: whether the model looks at the encoder's pooled output.
        evaluation_splits, test_splits: what is scored while training, and what is answered at the end if it is there.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    labels: tuple[str, ...] | None
    main_metric: str
    defaults: Hyperparameters
    needs_pooler: bool = True
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    def files(self) -> list[Path]:
        """Returns the files that the task reads, of those in its folder; none where it reads folders of files."""
        return []

    @abc.abstractmethod
    def read(self, split: str) -> list[Any] | None:
        """Reads the examples of "train", or of an evaluation or test split; None where there is no file.

        Raises:
            UserError: naming file, row and mend of the first thing that is wrong.
        """

    def stream(self, split: str) -> Iterable[Any] | None:
        """Reads as `read` does, one example after the other where files may be larger than memory.

        What is wrong with an example may then be raised only when its turn comes.
        """
        return self.read(split)

    @abc.abstractmethod
    def rows(self, examples: Sequence[Any], tokenizer: Tokenizer, max_seq_length: int, training: bool) -> FeatureRows:
        """Makes features of the examples, and labels where `training`, which may ask for some thousands at a time."""

    @abc.abstractmethod
    def create_model(self, encoder: AlbertEncoder, dropout: float, early_exit: bool | LearnedExit) -> keras.Model:
        """Puts a new head on the encoder; with `early_exit`, asked of some kinds only, one for every step."""

    def compile_arguments(self) -> dict[str, Any]:
        """Gives `loss`, `metrics` and so on for `Model.compile`; empty where the model's own defaults are meant."""
        return {}

    @abc.abstractmethod
    def score(self, examples: Sequence[Any], rows: FeatureRows, outputs: Sequence[Any]) -> dict[str, float]:
        """Computes metrics by name; `outputs`: of each row what the model's call gave, an array or a dict of arrays."""

    def baseline(self, labelled: FeatureRows) -> tuple[str, np.ndarray] | None:
        """Returns what always to answer without looking at a text, in words and as the model's output for a row.

        Args:
            labelled: rows with labels, whose most frequent label, or mean, it is.

        Returns:
            None where the kind of task has no such answer.
        """
        return None

    @abc.abstractmethod
    def write_predictions(
        self, folder: Path, split: str, examples: Sequence[Any], rows: FeatureRows, outputs: Sequence[Any]
    ) -> list[Path]:
        """Writes the answers to a split, each file whole or not at all; returns what was written."""

    def describe(self) -> dict[str, Any]:
        """Says what serving must know, for task.json; fine-tuning adds max_seq_length and metrics."""
        return {
            "task": self.name,
            "kind": self.kind,
            "labels": None if self.labels is None else list(self.labels),
            "inputs": list(self.inputs),
            "null_threshold": None,
        }


def listed(examples: Iterable[Any] | None) -> list[Any] | None:
    """Makes a list of what `stream` gave, as `read` gives it."""
    return None if examples is None else list(examples)
