"""The whole way: load, cut, measure, distil on text, then on the task, and write a model folder with its report."""

import dataclasses
import functools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.checkpoints.vocabulary import keep_pieces
from albert_tf.compression.distillation import Lesson, TextDistillation, digest_of, lessons_of, resolved
from albert_tf.compression.quality import Quality
from albert_tf.compression.report import milliseconds, write_report
from albert_tf.compression.settings import CORPUS, CompressSettings
from albert_tf.compression.start import Cut, TableRow, compress, cut_config, cut_of, row_of, table
from albert_tf.compression.text import (
    Texts,
    count_pieces,
    finetuning_settings,
    make_rows,
    read_texts,
    split_texts,
    task_of,
)
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading import Loaded, load
from albert_tf.model_files import MODEL_FILE, TASK_FILE
from albert_tf.training import run_folder
from albert_tf.training.devices import Devices, make_devices
from albert_tf.training.finetuning import finetune
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.pruning import prune_tokenizer

# Folders of the two phases within the model's, and what was measured before them.
TEXT_PHASE, TASK_PHASE, TABLE_FILE = "text_phase", "task_phase", "table.json"


class Work(NamedTuple):
    """What a compression works on.

    Attributes:
        loaded: the whole model, as it came.
        teacher: what is compressed and taught by: that model, perhaps of fewer pieces.
        tokenizer: of the teacher and the student.
        cut: what is to become of it.
        counts: how often each piece occurs in the text, [vocab_size]; None without any.
        texts: to learn from and to measure by.
        quality: what scores models.
        is_trained: whether the model was fine-tuned on the task that it is measured by.
    """

    loaded: Loaded
    teacher: Any
    tokenizer: Tokenizer
    cut: Cut
    counts: np.ndarray | None
    texts: Texts
    quality: Quality
    is_trained: bool

    def score(self, model: keras.Model) -> dict[str, float]:
        """Scores a model that reads the ids of `tokenizer`."""
        return self.quality(model, self.tokenizer)

    def likeness(self, model: keras.Model) -> float:
        """Tells how like the whole model's a model's vectors are."""
        return self.quality.likeness(model, self.tokenizer)


def run(settings: CompressSettings, devices: Devices | None = None) -> Path:
    """Compresses a model into a model folder, going on where an earlier run of the same settings stopped.

    Args:
        settings: of the run.
        devices: to train on; by default those of `settings.strategy`.

    Returns:
        The folder: an ordinary model folder, with compress.json and compress.html.

    Raises:
        UserError: for a model, text or task that this cannot be done with, or a folder that holds another run.
    """
    started, devices = time.monotonic(), devices or make_devices(settings.strategy)
    work, folder = prepare(settings), files.make_output_dir(settings.output_dir)
    rows = _measured(settings, work, folder)
    make = functools.partial(_student, settings, work)
    done = {"start": rows[-1]}
    model, tokenizer = None, work.tokenizer
    if settings.num_train_steps:
        phase = _text_phase(settings, work, make, devices, started, folder / TEXT_PHASE)
        if not phase.run():
            return folder
        phase.clean_up()
        model = load_keras(phase.folder)
        done["text"] = row_of("distilled on text", model, work.score)
    if devices.is_chief:
        _write_model(model or make(), tokenizer, work.loaded.task, folder)
    if work.is_trained and settings.num_train_steps:
        _task_phase(settings, work, folder, devices)
        model = load_keras(folder)
        done["task"] = row_of("distilled on the task", model, work.score)
    if devices.is_chief:
        speeds = {"as it is": milliseconds(work.teacher), "compressed": milliseconds(model or make())}
        write_report(folder, settings, work.quality, work.cut, rows, done, speeds)
    return folder


def prepare(settings: CompressSettings) -> Work:
    """Reads everything, so that whatever is wrong with it is said before any work.

    Raises:
        UserError: naming what is wrong.
    """
    loaded, task = load(settings.model).in_use, task_of(settings)
    if loaded.tokenizer is None:
        raise UserError(f"'{settings.model}' holds no tokenizer; put its vocabulary into the folder")
    is_trained = task is not None and loaded.task.get("task") == settings.task
    teacher, tokenizer = loaded.model, loaded.tokenizer
    config = encoder_of(teacher).config
    if settings.max_seq_length > config.max_seq_length:
        raise UserError(f"--max_seq_length={settings.max_seq_length} is more than the model's {config.max_seq_length}")
    texts = Texts([], [])
    if settings.text or (settings.num_train_steps and task is not None):
        texts = split_texts(read_texts(settings, settings.text, task, pairs=is_trained), settings)
    if settings.vocab_from:
        teacher, tokenizer = _pruned(settings, teacher, tokenizer, texts)
    quality = Quality(task, is_trained, texts.held_out, settings.max_seq_length, settings.eval_batch_size)
    quality.remember(loaded.model, loaded.tokenizer)
    counts = count_pieces(texts.train, tokenizer) if texts.train else None
    cut = cut_of(settings, teacher, counts)
    return Work(loaded, teacher, tokenizer, cut, counts, texts, quality, is_trained)


def _pruned(settings: CompressSettings, model: Any, tokenizer: Tokenizer, texts: Texts) -> tuple[Any, Tokenizer]:
    """The model and its tokenizer of the pieces that a text uses."""
    if settings.vocab_from == CORPUS:
        counts = count_pieces(texts.train, tokenizer)
    else:
        counts = count_pieces(read_texts(settings, settings.vocab_from, None), tokenizer)
    small, kept = prune_tokenizer(tokenizer, counts, settings.vocab_size)
    return keep_pieces(model, kept), small


def _measured(settings: CompressSettings, work: Work, folder: Path) -> list[TableRow]:
    """The table of what each cut costs, or its first and last row; of a run that goes on as it was measured before."""
    key = {"cut": list(map(str, work.cut)), "teacher": digest_of(work.teacher), "quality": work.quality.name}
    key |= {"table": settings.table}
    path = folder / TABLE_FILE
    known = files.read_json(path) if path.is_file() else {}
    if known.get("key") == key:
        return [TableRow(**row) for row in known["rows"]]
    print(f"{work.quality.name}: what each cut costs by itself, without training", flush=True)
    rows = []
    for row in _table_rows(settings, work):
        rows.append(row)
        figures = ", ".join(f"{name} {value:.4f}" for name, value in row.scores.items())
        print(f"  {row.title:45} {row.parameters:>12,} parameters   {figures}", flush=True)
    files.write_json(path, {"key": key, "rows": [row._asdict() for row in rows]})
    return rows


def _table_rows(settings: CompressSettings, work: Work) -> Iterator[TableRow]:
    whole = work.loaded
    yield row_of("as it is", whole.model, lambda model: work.quality(model, whole.tokenizer))
    if work.teacher is not whole.model:
        yield row_of(f"vocabulary of {work.tokenizer.vocab_size} pieces", work.teacher, work.score)
    if settings.table:
        yield from table(work.teacher, work.cut, work.score, work.likeness, work.counts)
    else:
        yield row_of(work.cut.title, compress(work.teacher, work.cut, work.likeness, work.counts), work.score)


def _student(settings: CompressSettings, work: Work) -> Any:
    """The compressed model, to be trained: without dropout, of the dtype asked for."""
    model = compress(work.teacher, work.cut, work.likeness, work.counts)
    encoder = encoder_of(model)
    config = _student_config(encoder.config)
    changes = {"config": config.to_dict(), "dtype": settings.dtype_policy, "seed": settings.seed}
    changed = AlbertEncoder.from_config(encoder.get_config() | changes)
    student = changed
    if model is not encoder:
        own = {"encoder": keras.saving.serialize_keras_object(changed), "dtype": settings.dtype_policy}
        student = type(model).from_config(model.get_config() | own)
    student.set_weights(model.get_weights())
    return student


def _student_config(config):
    # What the teacher says of a text has no noise; dropout would add it.
    return config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def _text_phase(
    settings: CompressSettings, work: Work, make: Callable, devices: Devices, started: float, folder: Path
) -> TextDistillation:
    config = _student_config(cut_config(encoder_of(work.teacher).config, work.cut))
    masks = "words" in lessons_of(settings, work.teacher)
    train, held_out = (
        make_rows(texts, work.tokenizer, settings.max_seq_length, masks, settings.seed) for texts in work.texts
    )
    lesson = Lesson(work.teacher, make, config, work.tokenizer, work.cut.layers, train, held_out)
    settings = resolved(dataclasses.replace(settings, output_dir=str(folder)))
    return TextDistillation(settings, lesson, work.quality, devices, started)


def _task_phase(settings: CompressSettings, work: Work, folder: Path, devices: Devices) -> None:
    """Fine-tunes the compressed model beside the whole one, and takes the best for the folder's."""
    phase = folder / TASK_PHASE
    tuning = finetuning_settings(
        settings,
        init_from=str(folder / TEXT_PHASE),
        output_dir=str(phase),
        teacher=settings.model,
        num_train_steps=settings.task_train_steps,
        learning_rate=settings.task_learning_rate,
        distillation_weight=settings.task_distillation_weight,
        max_seq_length=settings.max_seq_length,
        seed=settings.seed,
        strategy=settings.strategy,
    )
    finetune(tuning, devices=devices)
    for path in sorted(phase.iterdir()):
        if devices.is_chief and path.is_file() and path.name not in run_folder.OF_TRAINING:
            with files.replacing(folder / path.name) as temporary:
                shutil.copyfile(path, temporary)


def _write_model(model: Any, tokenizer: Tokenizer, task: dict[str, Any], folder: Path) -> None:
    save_keras(model, folder / MODEL_FILE, optimizer=False)
    tokenizer.save(folder)
    encoder_of(model).config.to_json(folder / "config.json")
    if task.get("task"):
        files.write_json(folder / TASK_FILE, task)
