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

# Numbers of examples to fit a linear probe to, and to score on.
PROBE_EXAMPLES, SCORED_EXAMPLES = 4000, 2000
# The probe's ridge, relative to the features' mean square.
_RIDGE = 0.1


class Quality:
    """Scores models on a task's evaluation examples, and by the cosine between their vectors and a teacher's.

    A model fine-tuned for the task (`is_trained`) predicts with its own head. For others, cosines of text pairs are
    correlated with numeric labels, or a linear probe predicts classes. `likeness` compares vectors of held-out `texts`.
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
        return isinstance(self.task, TextTask) and self.task.labels is None and len(self.task.inputs) == 2

    @property
    def name(self) -> str:
        if self.task is None:
            return "likeness"
        if self.is_trained:
            return f"{self.task.name} {self.task.main_metric}"
        how = "by cosine" if self.is_cosine else "by a linear probe"
        return f"{self.task.name} {self.metric} {how}"

    @property
    def metric(self) -> str:
        """The name of the main score."""
        if self.task is None:
            return "likeness"
        return "spearman" if self.is_cosine and not self.is_trained else self.task.main_metric

    @property
    def digest(self) -> str:
        """The SHA-256 of the texts and examples that scores depend on."""
        asked = self.texts, self.task and self.examples, self.train
        return hashlib.sha256(repr(asked).encode()).hexdigest()

    def remember(self, teacher: keras.Model, tokenizer: Tokenizer) -> None:
        if self.texts:
            self._vectors = self._embed(teacher, tokenizer, self.texts)

    def __call__(self, model: keras.Model, tokenizer: Tokenizer) -> dict[str, float]:
        scores = {}
        if self.task is not None:
            scores = self._task_scores(model, tokenizer)
        if self._vectors is not None:
            scores["likeness"] = self.likeness(model, tokenizer)
        return scores

    def likeness(self, model: keras.Model, tokenizer: Tokenizer) -> float:
        """Returns the mean cosine between a model's and the teacher's vectors."""
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
        columns = zip(*(example.texts for example in examples))
        return [self._embed(model, tokenizer, [(text,) for text in texts]) for texts in columns]

    def _embed(self, model: keras.Model, tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]]) -> np.ndarray:
        rows = text_rows(tokenizer, list(zip(*texts)), self.max_seq_length)
        # A new embedder would have to trace its graph again.
        if self._last[0] is not model:
            self._last = model, embedder_of(model)
        return np.array(predict(self._last[1], rows, self.batch_size, self.max_seq_length), "float64")


def embedder_of(model: keras.Model) -> AlbertSentenceEmbedder:
    """Returns a sentence embedder with the model's encoder; its vectors have length 1."""
    if isinstance(model, AlbertSentenceEmbedder) and model.normalize:
        return model
    pooling = model.pooling if isinstance(model, AlbertSentenceEmbedder) else "mean"
    return AlbertSentenceEmbedder(encoder_of(model), pooling=pooling)


def _pair_features(vectors: list[np.ndarray]) -> np.ndarray:
    if len(vectors) == 1:
        return vectors[0]
    first, second = vectors
    return np.concatenate([np.abs(first - second), first * second], axis=1)
