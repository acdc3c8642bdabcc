import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.compression.likeness import Likeness
from albert_tf.compression.settings import FREE_ON_RESUME, CompressSettings
from albert_tf.compression.taught import can_be_kept, gigabytes, remove_taught, taught
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.text_student import TextStudent
from albert_tf.optimizers import create_optimizer
from albert_tf.tasks.rows import FeatureRows
from albert_tf.training.batches import batches_per_epoch, predict, reader
from albert_tf.training.devices import Devices
from albert_tf.training.loop import Phase, Training
from albert_tf.training.preparation import digest
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

# The weights of loss terms on a text's vector, for models that are used for it.
_VECTOR_WEIGHTS = {"vectors_weight": 1.0, "similarities_weight": 10.0}


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


def lessons_of(settings: CompressSettings, teacher: keras.Model) -> dict[str, float]:
    """Returns the nonzero weights of loss terms by name; raises UserError if the teacher does not support a term."""
    config = encoder_of(teacher).config
    is_read_as_it_is = config.norm_position == "post" and not any(one.changes_input for one in config.extensions)
    if settings.relations_weight and not is_read_as_it_is:
        raise UserError(
            f"--relations_weight={settings.relations_weight:g} compares the values that the last block computes of the "
            "state before it, which this model's blocks do not read as it is; leave it out"
        )
    # XLNet, whose [CLS] is last, predicts words from position queries, which rows of text lack.
    can_words = isinstance(teacher, AlbertPretrainer) and not config.spec.last_token
    if not can_words and settings.words_weight and (given := settings.given(["words_weight"])):
        raise UserError(f"{given} needs a model with a masked-LM head, which '{settings.model}' is not; leave it out")
    weights = resolved(settings, teacher).weights
    lessons = {name: weight for name, weight in weights.items() if weight and (can_words or name != "words")}
    if "states" in lessons and any(one.walk for one in config.extensions):
        raise UserError(f"'{settings.model}' walks to an equilibrium and keeps no states; give --states_weight=0")
    if not lessons:
        raise UserError(f"nothing that '{settings.model}' can teach has a weight; give --states_weight=1")
    return lessons


def resolved(settings: CompressSettings, teacher: keras.Model) -> CompressSettings:
    """Returns the settings, with automatic values replaced by those for the teacher and other settings."""
    # The vectors of a fine-tuned model are not used. They separate the classes, and a small model memorizes the class
    # of each training text: on held-out pairs of MRPC the error of the states was 0.64 after 200 steps with these loss
    # terms, 0.35 without.
    has_vectors = isinstance(teacher, (AlbertEncoder, AlbertPretrainer, AlbertSentenceEmbedder))
    undecided = {name: weight for name, weight in _VECTOR_WEIGHTS.items() if getattr(settings, name) == -1}
    steps, warmup = settings.num_train_steps, settings.num_warmup_steps
    return dataclasses.replace(
        settings,
        num_warmup_steps=steps // 20 if warmup == -1 else warmup,
        save_checkpoints_steps=min(settings.save_checkpoints_steps or -(-steps // 20), steps),
        **{name: weight if has_vectors else 0.0 for name, weight in undecided.items()},
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
        weights = lessons_of(settings, self.lesson.teacher)
        model = TextStudent(self.lesson.student(), weights, settings.map_states, dtype=settings.dtype_policy)
        optimizer = create_optimizer(
            "adamw",
            settings.learning_rate,
            settings.num_train_steps,
            settings.num_warmup_steps,
            weight_decay=settings.weight_decay,
            # Without bias correction 0.999 makes steps of many times the rate for the first thousand.
            beta_2=0.98,
        )
        model.compile(optimizer=optimizer)
        optimizer.build(model.trainable_variables)
        return model

    def kept_model(self) -> keras.Model:
        return self.model.model

    def prepare(self) -> None:
        self.model.learn_from(self.lesson.teacher, self.states)
        self.train = self._taught_rows()

    def _taught_rows(self) -> FeatureRows:
        settings, rows, lessons = self.settings, self.lesson.train, self.model.lessons
        passes = settings.num_train_steps / batches_per_epoch(rows, settings.train_batch_size)
        needed = gigabytes(rows, lessons, self.states, self.config.hidden_size)
        if passes < 2 or not can_be_kept(lessons) or needed > settings.cache_gb or self.devices.replicas > 1:
            return rows
        key = f"{self.facts()['teacher_sha256']} {self.facts()['train_sha256']}"
        batch_size = settings.eval_batch_size
        return taught(rows, self.lesson.teacher, lessons, self.states, batch_size, self.folder, key)

    def remark(self) -> str:
        rows = self.lesson.train
        return f", {len(rows):,} rows of {int(rows.lengths.sum()):,} tokens"

    def batches(self, phase: Phase, step: int) -> Callable:
        return reader(self.train, self.settings, step)

    def evaluate(self, phase: Phase) -> dict[str, float]:
        settings, held_out = self.settings, self.lesson.held_out
        distances = predict(self.model, held_out, settings.eval_batch_size, settings.max_seq_length)
        figures = {name: float(np.mean([row[name] for row in distances])) for name in self.model.lessons}
        figures["loss"] = sum(self.model.lesson_weights[name] * value for name, value in figures.items())
        figures["likeness"] = self.likeness(self.model.model, self.tokenizer)
        return {f"val_{name}": value for name, value in figures.items()}

    def clean_up(self) -> None:
        if self.devices.is_chief:
            remove_taught(self.folder)


def digest_of(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's encoder weights, without dropout's state."""
    state = hashlib.sha256()
    for variable in encoder_of(model).weights:
        state.update(ops.convert_to_numpy(variable).tobytes())
    return state.hexdigest()
