"""How good a model is without training it: on a task where it can answer it, and beside its teacher on text."""

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.tasks.metrics import METRICS
from albert_tf.tasks.rows import text_rows
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_task import TextExample, TextTask
from albert_tf.training.batches import predict
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

# Examples that a linear probe is fitted to, and that anything is scored on.
PROBE_EXAMPLES, SCORED_EXAMPLES = 4000, 2000
# The probe's ridge, relative to the features' mean square.
_RIDGE = 0.1


class Quality:
    """Scores models on the evaluation examples of a task, or by how near their vectors are to a teacher's.

    - A model fine-tuned for the task answers it; its head is what was trained.
    - On two texts with a number, others score by the cosine of the texts' vectors.
    - On any other texts with a class or a number, a linear probe on the vectors does, fitted anew for each model.

    Args:
        task: to score on; None: by the vectors of `rows` alone.
        is_trained: whether the models have the task's own head.
        texts: held-out ones, for `likeness`, one or two a row.
        max_seq_length: of the longest row, in tokens.
        batch_size: rows a batch.

    Raises:
        UserError: the task has no evaluation file, or is of a kind that only a fine-tuned model answers.
    """

    def __init__(
        self,
        task: Task | None,
        is_trained: bool,
        texts: Sequence[tuple[str, ...]],
        max_seq_length: int,
        batch_size: int,
    ):
        self.task, self.is_trained, self.texts = task, is_trained, list(texts)
        self.max_seq_length, self.batch_size = max_seq_length, batch_size
        self.train: list[Any] = []
        self._vectors: np.ndarray | None = None
        self._last: tuple[Any, Any] = (None, None)
        if task is None:
            return
        found = task.read(task.evaluation_splits[0])
        if found is None:
            raise UserError(f"--task={task.name} has no {task.evaluation_splits[0]} file to measure by")
        # Spread over the file, which may have its classes or documents in order.
        self.examples = found[:: -(-len(found) // SCORED_EXAMPLES)]
        if is_trained:
            return
        if not isinstance(task, TextTask):
            raise UserError(f"--task={task.name} is answered by a model fine-tuned on it; give such a one as --model")
        if not self.is_cosine:
            examples = list(task.stream("train") or ())
            if not examples:
                raise UserError(f"--task={task.name} has no training file, which a probe of the vectors is fitted to")
            self.train = examples[:: -(-len(examples) // PROBE_EXAMPLES)]

    @property
    def is_cosine(self) -> bool:
        """Tells whether the task is answered by the cosine of two texts."""
        return isinstance(self.task, TextTask) and self.task.labels is None and len(self.task.inputs) == 2

    @property
    def name(self) -> str:
        """Says what the main score is."""
        if self.task is None:
            return "likeness"
        if self.is_trained:
            return f"{self.task.name} {self.task.main_metric}"
        how = "by cosine" if self.is_cosine else "by a linear probe"
        return f"{self.task.name} {self.metric} {how}"

    @property
    def metric(self) -> str:
        """Gives the main score's key; cosines are scored by ranks."""
        if self.task is None:
            return "likeness"
        return "spearman" if self.is_cosine and not self.is_trained else self.task.main_metric

    @property
    def digest(self) -> str:
        """Gives the SHA-256 of all that models are scored by."""
        asked = self.texts, self.task and self.examples, self.train
        return hashlib.sha256(repr(asked).encode()).hexdigest()

    def remember(self, teacher: keras.Model, tokenizer: Tokenizer) -> None:
        """Notes the teacher's vectors of the held-out texts, which `likeness` compares with."""
        if self.texts:
            self._vectors = self._embed(teacher, tokenizer, self.texts)

    def __call__(self, model: keras.Model, tokenizer: Tokenizer) -> dict[str, float]:
        """Scores a model: the task's metrics, and likeness, the mean cosine of its vectors with the teacher's."""
        scores = {}
        if self.task is not None:
            scores = self._task_scores(model, tokenizer)
        if self._vectors is not None:
            scores["likeness"] = self.likeness(model, tokenizer)
        return scores

    def likeness(self, model: keras.Model, tokenizer: Tokenizer) -> float:
        """Computes the mean cosine of a model's vectors with those of the teacher that `remember` was given."""
        vectors = self._embed(model, tokenizer, self.texts)
        return float(np.mean(np.sum(vectors * self._vectors, axis=1)))

    def _task_scores(self, model: keras.Model, tokenizer: Tokenizer) -> dict[str, float]:
        if self.is_trained:
            rows = self.task.rows(self.examples, tokenizer, self.max_seq_length, training=False)
            return self.task.score(self.examples, rows, predict(model, rows, self.batch_size, self.max_seq_length))
        vectors = self._vectors_of(model, tokenizer, self.examples)
        labels = np.array([example.label for example in self.examples])
        if self.is_cosine:
            answers = np.sum(vectors[0] * vectors[1], axis=1)
            return {name: METRICS[name](answers, labels) for name in ("spearman", "pearson")}
        answers = self._probe(self._vectors_of(model, tokenizer, self.train), vectors)
        return {name: METRICS[name](answers, labels) for name in self.task.metrics}

    def _probe(self, train: list[np.ndarray], vectors: list[np.ndarray]) -> np.ndarray:
        """Ridge regression from vectors to the classes, each as 0 or 1, or to the number."""
        inputs, asked = (_pair_features(each) for each in (train, vectors))
        labels = np.array([example.label for example in self.train])
        targets = labels[:, None] if self.task.labels is None else np.eye(len(self.task.labels))[labels]
        shift, mean = inputs.mean(axis=0), targets.mean(axis=0)
        centred = inputs - shift
        square = centred.T @ centred
        square += _RIDGE * np.mean(np.diag(square)) * np.eye(len(square))
        answers = (asked - shift) @ np.linalg.solve(square, centred.T @ (targets - mean)) + mean
        return answers[:, 0] if self.task.labels is None else answers.argmax(axis=1)

    def _vectors_of(
        self, model: keras.Model, tokenizer: Tokenizer, examples: Sequence[TextExample]
    ) -> list[np.ndarray]:
        """Of each of the examples' texts, [examples, hidden_size]."""
        columns = zip(*(example.texts for example in examples))
        return [self._embed(model, tokenizer, [(text,) for text in texts]) for texts in columns]

    def _embed(self, model: keras.Model, tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        rows = text_rows(tokenizer, list(zip(*texts)), self.max_seq_length)
        # An embedder has a graph of its own, which one made anew would build anew.
        if self._last[0] is not model:
            self._last = model, embedder_of(model)
        return np.array(predict(self._last[1], rows, self.batch_size, self.max_seq_length), "float64")


def embedder_of(model: keras.Model) -> AlbertSentenceEmbedder:
    """Gives the model itself where it makes vectors of length 1, or else one that averages its hidden states."""
    if isinstance(model, AlbertSentenceEmbedder) and model.normalize:
        return model
    pooling = model.pooling if isinstance(model, AlbertSentenceEmbedder) else "mean"
    return AlbertSentenceEmbedder(encoder_of(model), pooling=pooling)


def _pair_features(vectors: list[np.ndarray]) -> np.ndarray:
    if len(vectors) == 1:
        return vectors[0]
    first, second = vectors
    return np.concatenate([np.abs(first - second), first * second], axis=1)
