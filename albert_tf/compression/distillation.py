"""Trains a student to repeat its teacher's hidden states, vectors and likenesses of texts."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.compression.settings import FREE_ON_RESUME, CompressSettings
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.text_student import TextStudent
from albert_tf.tasks.prediction import predict
from albert_tf.tasks.rows import FeatureRows, text_rows
from albert_tf.training.loop.batches import reader
from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.training import Phase, Training
from albert_tf.training.preparation import digest
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer


class Likeness:
    """Computes the mean cosine between a model's and a teacher's vectors of the same `texts`."""

    def __init__(
        self,
        teacher: keras.Model,
        tokenizer: Tokenizer,
        texts: Sequence[tuple[str, ...]],
        max_seq_length: int,
        batch_size: int,
    ):
        self.texts, self.max_seq_length, self.batch_size = texts, max_seq_length, batch_size
        self._last: tuple[keras.Model | None, keras.Model | None] = (None, None)
        self._vectors = self._embed(teacher, tokenizer)

    def __call__(self, model: keras.Model, tokenizer: Tokenizer) -> float:
        return float(np.mean(np.sum(self._embed(model, tokenizer) * self._vectors, axis=1)))

    def _embed(self, model: keras.Model, tokenizer: Tokenizer) -> np.ndarray:
        rows = text_rows(tokenizer, list(zip(*self.texts)), self.max_seq_length)
        # A new embedder would have to trace its graph again.
        if self._last[0] is not model:
            self._last = model, _embedder_of(model)
        return np.array(predict(self._last[1], rows, self.batch_size, self.max_seq_length), "float64")


def _embedder_of(model: keras.Model) -> AlbertSentenceEmbedder:
    if isinstance(model, AlbertSentenceEmbedder) and model.normalize:
        return model
    pooling = model.pooling if isinstance(model, AlbertSentenceEmbedder) else "mean"
    return AlbertSentenceEmbedder(encoder_of(model), pooling=pooling)


# The weights of the loss terms.
WEIGHTS = {"vectors": 1.0, "similarities": 10.0, "states": 1.0, "words": 1.0}
_OF_VECTORS = ("vectors", "similarities")


class Lesson(NamedTuple):
    """The inputs of a distillation.

    Attributes:
        student: a function that makes the model to train.
        layers: indices of the teacher's layers from which the student was made.
    """

    teacher: keras.Model
    student: Callable[[], keras.Model]
    config: Any
    tokenizer: Tokenizer
    layers: tuple[int, ...]
    train: FeatureRows
    held_out: FeatureRows


def lessons_of(teacher: keras.Model) -> dict[str, float]:
    """Returns the weights of the loss terms that a teacher supports."""
    config = encoder_of(teacher).config
    # The vectors of a fine-tuned model are not used. They separate the classes, and a small model memorizes the class
    # of each training text: on held-out pairs of MRPC the error of the states was 0.64 after 200 steps with these loss
    # terms, 0.35 without.
    has_vectors = isinstance(teacher, (AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder))
    lessons = [name for name in WEIGHTS if has_vectors or name not in _OF_VECTORS]
    # XLNet, whose [CLS] is last, predicts words from position queries, which rows of text lack.
    if not isinstance(teacher, AlbertPretrainer) or config.spec.last_token:
        lessons.remove("words")
    # A model that iterates to a fixed point keeps no states.
    if any(one.walk for one in config.extensions):
        lessons.remove("states")
    if not lessons:
        raise UserError("the model keeps no states and has no vectors of its own, so that it can teach nothing")
    return {name: WEIGHTS[name] for name in lessons}


def resolved(settings: CompressSettings) -> CompressSettings:
    """Returns the settings, with automatic values replaced."""
    steps, warmup = settings.num_train_steps, settings.num_warmup_steps
    return dataclasses.replace(
        settings,
        num_warmup_steps=steps // 20 if warmup == -1 else warmup,
        save_checkpoints_steps=min(settings.save_checkpoints_steps or -(-steps // 20), steps),
    )


class TextDistillation(Training):
    """Trains a compressed model on text."""

    name = "distillation"
    free = FREE_ON_RESUME
    remedy = "lower --learning_rate"

    def __init__(
        self, settings: CompressSettings, lesson: Lesson, likeness: Likeness, devices: Devices, started: float
    ):
        super().__init__(settings, devices, lesson.config, lesson.tokenizer, started)
        size = min(settings.train_batch_size, len(lesson.train))
        devices.check_batch(size, settings.gradient_accumulation_steps)
        self.lesson, self.likeness = lesson, likeness
        self.main_metric, self.lower_is_better = "val_loss", True
        inner = lesson.config.inner_group_num
        # After the embeddings, and after each block of the student's layers.
        self.states = [0, *(layer * inner + place for layer in lesson.layers for place in range(1, inner + 1))]

    def facts(self) -> dict[str, Any]:
        return {
            "student": self.config.to_dict(),
            "teacher_sha256": digest_of(self.lesson.teacher),
            "tokenizer_sha256": self.tokenizer.sha256,
            "train_sha256": digest(self.lesson.train),
        }

    def new_model(self) -> keras.Model:
        settings = self.settings
        model = TextStudent(self.lesson.student(), lessons_of(self.lesson.teacher), dtype=settings.dtype_policy)
        # Without bias correction 0.999 makes steps of many times the rate for the first thousand.
        model.compile(optimizer=self.optimizer(model, beta_2=0.98))
        return model

    def kept_model(self) -> keras.Model:
        return self.model.model

    def prepare(self) -> None:
        self.model.learn_from(self.lesson.teacher, self.states)

    def remark(self) -> str:
        rows = self.lesson.train
        return f", {len(rows):,} rows of {int(rows.lengths.sum()):,} tokens"

    def batches(self, phase: Phase, step: int) -> Callable:
        return reader(self.lesson.train, self.settings, step)

    def evaluate(self, phase: Phase) -> dict[str, float]:
        settings, held_out = self.settings, self.lesson.held_out
        distances = predict(self.model, held_out, settings.eval_batch_size, settings.max_seq_length)
        figures = {name: float(np.mean([row[name] for row in distances])) for name in self.model.lessons}
        figures["loss"] = sum(self.model.lesson_weights[name] * value for name, value in figures.items())
        figures["likeness"] = self.likeness(self.model.model, self.tokenizer)
        return {f"val_{name}": value for name, value in figures.items()}


def digest_of(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's encoder weights, without dropout's state."""
    state = hashlib.sha256()
    for variable in encoder_of(model).weights:
        state.update(ops.convert_to_numpy(variable).tobytes())
    return state.hexdigest()
