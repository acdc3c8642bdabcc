import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf.analysis.cost import parameters
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.checkpoints.vocabulary import keep_pieces
from albert_tf.compression.checks import TABLE_FILE, check_folder, check_no_task_phase, check_same_task
from albert_tf.compression.distillation import Lesson, TextDistillation, digest_of, lessons_of, resolved
from albert_tf.compression.quality import Quality
from albert_tf.compression.report import milliseconds, write_report
from albert_tf.compression.settings import CORPUS, CompressSettings
from albert_tf.compression.start import CompressionPlan, TableRow, compress, cut_config, cut_of, row_of, table
from albert_tf.compression.task_phase import TEXT_PHASE, TaskPhase
from albert_tf.compression.text import Texts, count_pieces, make_rows, read_texts, split_texts, task_of
from albert_tf.index import identity
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading import Loaded, load
from albert_tf.model_files import MODEL_FILE, TASK_FILE
from albert_tf.training import run_folder
from albert_tf.training.devices import Devices, make_devices
from albert_tf.training.start import longer_command
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import say_export
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.pruning import prune_tokenizer


class CompressionInput(NamedTuple):
    """The input of a compression.

    Attributes:
        teacher: the original model, perhaps with a smaller vocabulary.
        counts: how often each token occurs in the text, [vocab_size].
        is_trained: whether the model was fine-tuned on the task.
    """

    loaded: Loaded
    teacher: Any
    tokenizer: Tokenizer
    cut: CompressionPlan
    counts: np.ndarray | None
    texts: Texts
    quality: Quality
    is_trained: bool

    def score(self, model: keras.Model) -> dict[str, float]:
        return self.quality(model, self.tokenizer)

    def likeness(self, model: keras.Model) -> float:
        return self.quality.likeness(model, self.tokenizer)


def run(settings: CompressSettings, devices: Devices | None = None) -> Path | None:
    """Compresses a model into a folder, or resumes a run; returns the folder, or None if the run stopped early."""
    started, devices = time.monotonic(), devices or make_devices(settings.strategy)
    work, folder = prepare(settings), Path(settings.output_dir)
    make = functools.partial(_student, settings, work)
    phase = task_phase = None
    if settings.num_train_steps:
        phase = _text_phase(settings, work, make, devices, started, folder / TEXT_PHASE)
        run_folder.check_claim(phase.folder, phase.settings, phase.free, phase.facts())
        task_phase = TaskPhase(settings, work.loaded, folder, devices, started) if work.is_trained else None
    if task_phase is not None:
        task_phase.check()
    else:
        check_no_task_phase(settings)
    rows = _measured(settings, work, files.make_output_dir(folder), devices.is_chief)
    done, kept = {"start": rows[-1]}, "start"
    if phase is None:
        model = make()
    elif phase.run():
        phase.clean_up()
        model, kept = load_keras(phase.folder), "text"
        done[kept] = row_of("distilled on text", model, work.score)
    else:
        return None
    task = _task(settings, work, done[kept])
    if task_phase is None or not task_phase.is_done:
        _write_model(model, work, task, folder, devices)  # A model remains if the next phase is stopped.
    if task_phase is not None:
        if not task_phase.run(task):
            return None
        tuned = load_keras(task_phase.folder)
        done["task"] = row_of("distilled on the task", tuned, work.score)
        if _is_worse(work, done):
            _write_model(model, work, task, folder, devices)
        else:
            model, kept = tuned, "task"
            if devices.is_chief:
                run_folder.copy_model(task_phase.folder, folder)
    if devices.is_chief:
        speeds = {"as it is": milliseconds(work.teacher), "compressed": milliseconds(model)}
        write_report(folder, settings, work.quality, work.cut, rows, done, kept, speeds)
    return folder


def run_and_say(settings: CompressSettings) -> None:
    """Compresses on the devices of --strategy; prints what was written, and the next command."""
    devices = make_devices(settings.strategy)
    folder = run(settings, devices)
    if devices.is_chief and folder is not None:
        print(f"wrote {folder / MODEL_FILE}")
        say_export(folder, "--inputs=text", "--compute=auto")


def prepare(settings: CompressSettings) -> CompressionInput:
    """Reads and checks all inputs of a compression."""
    check_folder(settings)
    loaded, task = load(settings.model), task_of(settings)
    if loaded.tokenizer is None:
        raise UserError(f"'{settings.model}' holds no tokenizer; put its vocabulary into the folder")
    is_trained = task is not None and loaded.task.get("task") == settings.task
    if is_trained:
        check_same_task(settings, loaded.task, task.describe())
    teacher, tokenizer = loaded.model, loaded.tokenizer
    config = encoder_of(teacher).config
    if settings.max_seq_length > config.max_seq_length:
        raise UserError(
            f"--max_seq_length={settings.max_seq_length} is more than the {config.max_seq_length} tokens that the "
            "model takes; give less, or make the model longer and train it on: "
            f"{longer_command(settings.model, settings.max_seq_length)}, and then --model=longer"
        )
    texts = Texts([], [])
    # The table selects "best" blocks by texts; it has plans only for models that share nothing.
    has_plans = settings.table and config.sharing == "none" and settings.plan != "none"
    is_read = settings.num_train_steps or has_plans or settings.block == "best" or settings.vocab_from == CORPUS
    if settings.text or is_read:
        texts = split_texts(read_texts(settings, settings.text, task, pairs=is_trained), settings)
    if settings.vocab_from:
        teacher, tokenizer = _pruned(settings, teacher, tokenizer, texts)
    quality = Quality(task, is_trained, texts.held_out, settings.max_seq_length, settings.eval_batch_size)
    quality.remember(loaded.model, loaded.tokenizer)
    counts = count_pieces(texts.train, tokenizer) if texts.train else None
    cut = cut_of(settings, teacher, counts)
    small = parameters(cut_config(config, cut)).encoder
    if settings.num_train_steps and teacher is loaded.model and small >= parameters(config).encoder:
        raise UserError(
            f"nothing of '{settings.model}' would become smaller: give --embedding_size, --plan, --layers, "
            "a smaller --lora_rank, or --vocab_from=corpus"
        )
    return CompressionInput(loaded, teacher, tokenizer, cut, counts, texts, quality, is_trained)


def _pruned(settings: CompressSettings, model: Any, tokenizer: Tokenizer, texts: Texts) -> tuple[Any, Tokenizer]:
    if settings.vocab_from == CORPUS:
        counts = count_pieces(texts.train, tokenizer)
    else:
        counts = count_pieces(read_texts(settings, settings.vocab_from, None), tokenizer)
    small, kept = prune_tokenizer(tokenizer, counts, settings.vocab_size)
    return keep_pieces(model, kept), small


def _measured(settings: CompressSettings, work: CompressionInput, folder: Path, is_chief: bool) -> list[TableRow]:
    key = {"cut": list(map(str, work.cut)), "teacher": digest_of(work.teacher), "quality": work.quality.name}
    key |= {"table": settings.table, "asked": work.quality.digest, "max_seq_length": settings.max_seq_length}
    path = folder / TABLE_FILE
    known = files.read_object(path)
    try:
        rows = [TableRow(**row) for row in known["rows"]] if known.get("key") == key else []
    except (KeyError, TypeError):
        raise UserError(f"'{path}' is damaged; remove it, and the table begins anew") from None
    left = list(_table_rows(settings, work))[len(rows) :]
    say = functools.partial(print, flush=True) if is_chief else lambda line: None
    if left:
        say(f"{work.quality.name}: what each cut costs by itself, without training")
    for measure in left:
        rows.append(row := measure())
        figures = ", ".join(f"{name} {value:.4f}" for name, value in row.scores.items())
        say(f"  {row.title:45} {row.parameters:>12,} parameters   {figures}")
        if is_chief:
            files.write_json(path, {"key": key, "rows": [row._asdict() for row in rows]})
    return rows


def _table_rows(settings: CompressSettings, work: CompressionInput) -> Iterator[Callable[[], TableRow]]:
    whole, pieces = work.loaded, work.tokenizer.vocab_size
    yield lambda: row_of("as it is", whole.model, lambda model: work.quality(model, whole.tokenizer))
    if work.teacher is not whole.model:
        yield lambda: row_of(f"vocabulary of {pieces} pieces", work.teacher, work.score)
    if settings.table:
        yield from table(work.teacher, work.cut, work.score, work.likeness, work.counts)
    else:
        yield lambda: row_of(work.cut.title, _cut(work), work.score)


def _cut(work: CompressionInput) -> Any:
    return compress(work.teacher, work.cut, work.likeness, work.counts)


def _student(settings: CompressSettings, work: CompressionInput) -> Any:
    model = _cut(work)
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
    # The teacher's outputs have no noise; dropout would add some.
    return config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def _text_phase(
    settings: CompressSettings, work: CompressionInput, make: Callable, devices: Devices, started: float, folder: Path
) -> TextDistillation:
    config = _student_config(cut_config(encoder_of(work.teacher).config, work.cut))
    masks = "words" in lessons_of(settings, work.teacher)
    train, held_out = (
        make_rows(texts, work.tokenizer, settings.max_seq_length, masks, settings.seed) for texts in work.texts
    )
    lesson = Lesson(work.teacher, make, config, work.tokenizer, work.cut.layers, train, held_out)
    settings = resolved(dataclasses.replace(settings, output_dir=str(folder)), work.teacher)
    return TextDistillation(settings, lesson, work.quality, devices, started)


def _task(settings: CompressSettings, work: CompressionInput, row: TableRow) -> dict[str, Any]:
    own = {name: value for name, value in work.loaded.task.items() if name not in ("metrics", "distilled_from")}
    if not work.is_trained:
        # Its vectors resemble the original model's, so it may search that model's index.
        is_taught = resolved(settings, work.teacher).vectors_weight > 0 and settings.num_train_steps
        return own | ({"distilled_from": identity(work.loaded)} if is_taught else {})
    assert work.quality.task is not None
    metrics = {name: value for name, value in row.scores.items() if name != "likeness"}
    # For questions without an answer, it includes the threshold that scoring determined.
    return own | work.quality.task.describe() | {"max_seq_length": settings.max_seq_length, "metrics": metrics}


def _is_worse(work: CompressionInput, done: dict[str, TableRow]) -> bool:
    name = work.quality.metric
    text, task = (done[phase].scores[name] for phase in ("text", "task"))
    if task < text:
        print(f"the model distilled on text alone is kept: {name} {text:.4f}, after the task {task:.4f}")
    return task < text


def _write_model(model: Any, work: CompressionInput, task: dict[str, Any], folder: Path, devices: Devices) -> None:
    if not devices.is_chief:
        return
    save_keras(model, folder / MODEL_FILE, optimizer=False)
    work.tokenizer.save(folder)
    encoder_of(model).config.to_json(folder / "config.json")
    if task:
        files.write_json(folder / TASK_FILE, task)
    else:
        (folder / TASK_FILE).unlink(missing_ok=True)  # Of another model that was compressed into this folder.
