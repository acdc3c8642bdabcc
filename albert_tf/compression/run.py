import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf.analysis.cost import parameters
from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.checkpoints.resizing import keep_pieces
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.compression.distillation import Lesson, Likeness, TextDistillation, lessons_of, resolved
from albert_tf.compression.settings import CORPUS, CompressSettings
from albert_tf.compression.start import CompressionPlan, compress, cut_config, cut_of
from albert_tf.compression.text import Texts, count_pieces, make_rows, read_texts, split_texts, task_of
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.load import Loaded, load
from albert_tf.loading.model_files import MODEL_FILE, TASK_FILE
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.devices import Devices, make_devices
from albert_tf.training.start import check_length
from tfrecords.base import files
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.script import say_export
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.vocabularies.pruning import prune_tokenizer

# What a compressed model's folder says of the compression, and the folder of its training.
REPORT_FILE, TEXT_PHASE = "compress.json", "text_phase"


class CompressionInput(NamedTuple):
    """The input of a compression.

    Attributes:
        teacher: the original model, perhaps with a smaller vocabulary.
        counts: how often each token occurs in the text, [vocab_size].
        likeness: compares models with the original one.
    """

    loaded: Loaded
    teacher: Any
    tokenizer: Tokenizer
    cut: CompressionPlan
    counts: np.ndarray
    texts: Texts
    likeness: Likeness

    def score(self, model: keras.Model) -> float:
        return self.likeness(model, self.tokenizer)


def run(settings: CompressSettings, devices: Devices | None = None) -> Path | None:
    """Compresses a model into a folder, or resumes a run; returns the folder, or None if the run stopped early."""
    started, devices = time.monotonic(), devices or make_devices(settings.strategy)
    work, folder = prepare(settings), Path(settings.output_dir)

    @functools.cache
    def cut() -> Any:
        return compress(work.teacher, work.cut, work.counts)

    def make() -> Any:
        return _student(settings, cut())

    phase = None
    if settings.num_train_steps:
        phase = _text_phase(settings, work, make, devices, started, folder / TEXT_PHASE)
        run_folder.check_claim(phase.folder, phase.settings, phase.free, phase.facts())
    before = after = work.score(cut())
    if phase is None:
        model = make()
    elif phase.run():
        model = load_keras(phase.folder)
        after = work.score(model)
    else:
        return None
    if devices.is_chief:
        _report(settings, work, files.make_output_dir(folder), model.count_params(), before, after)
        _write_model(model, work, _task(settings, work), folder)
    return folder


def _report(
    settings: CompressSettings, work: CompressionInput, folder: Path, size: int, before: float, after: float
) -> None:
    whole = work.loaded.model.count_params()
    report = {
        "model": settings.model,
        "cut": work.cut._asdict(),
        "parameters": {"as it is": whole, "compressed": size},
        "likeness": {"untrained": before} | ({"trained": after} if settings.num_train_steps else {}),
        "settings": dataclasses.asdict(settings),
    }
    files.write_json(folder / REPORT_FILE, report)
    trained = f" without training, {after:.4f} after it" if settings.num_train_steps else ""
    print(f"likeness {before:.4f}{trained}; {whole:,} parameters to {size:,} (1 to {whole / size:.1f})")
    if after < before:
        logging.warning(
            "training made the model less like the whole one; train longer (--num_train_steps), lower --learning_rate "
            "or give more text, or keep the untrained model: --num_train_steps=0"
        )


def run_and_say(settings: CompressSettings) -> None:
    """Compresses on the devices of --strategy; prints what was written, and the next command."""
    devices = make_devices(settings.strategy)
    folder = run(settings, devices)
    if devices.is_chief and folder is not None:
        print(f"wrote {folder / MODEL_FILE}")
        say_export(folder, "--inputs=text", "--compute=auto")


def prepare(settings: CompressSettings) -> CompressionInput:
    """Reads and checks all inputs of a compression."""
    _check_folder(settings)
    loaded, task = load(settings.model), task_of(settings)
    if loaded.tokenizer is None:
        raise UserError(f"'{settings.model}' holds no tokenizer; put its vocabulary into the folder")
    is_trained = task is not None and loaded.task.get("task") == settings.task
    if task is not None and is_trained:
        read, given = len(loaded.task.get("inputs", task.inputs)), len(task.inputs)
        if read != given:
            raise UserError(
                f"--model={settings.model} was fine-tuned on rows of {read} texts, and --data_dir={settings.data_dir} "
                f"has rows of {given}; give the columns' flags: --text_column, --second_text_column"
            )
    teacher, tokenizer = loaded.model, loaded.tokenizer
    config = encoder_of(teacher).config
    check_length(settings.max_seq_length, config, settings.model, "--max_seq_length")
    texts = split_texts(read_texts(settings, settings.text, task, pairs=is_trained), settings)
    if settings.vocab_from:
        teacher, tokenizer = _pruned(settings, teacher, tokenizer, texts)
    likeness = Likeness(
        loaded.model, loaded.tokenizer, texts.held_out, settings.max_seq_length, settings.eval_batch_size
    )
    counts = count_pieces(texts.train, tokenizer)
    cut = cut_of(settings, teacher)
    small = parameters(cut_config(config, cut)).encoder
    if settings.num_train_steps and teacher is loaded.model and small >= parameters(config).encoder:
        raise UserError(
            f"nothing of '{settings.model}' would become smaller: give --embedding_size, --plan, --layers, "
            "a smaller --lora_rank, or --vocab_from=corpus"
        )
    return CompressionInput(loaded, teacher, tokenizer, cut, counts, texts, likeness)


def _pruned(settings: CompressSettings, model: Any, tokenizer: Tokenizer, texts: Texts) -> tuple[Any, Tokenizer]:
    if settings.vocab_from == CORPUS:
        counts = count_pieces(texts.train, tokenizer)
    else:
        counts = count_pieces(read_texts(settings, settings.vocab_from, None), tokenizer)
    small, kept = prune_tokenizer(tokenizer, counts, settings.vocab_size)
    return keep_pieces(model, kept), small


def _check_folder(settings: CompressSettings) -> None:
    """Raises UserError if a model in the output folder would be overwritten."""
    folder, model = Path(settings.output_dir).resolve(), Path(settings.model).resolve()
    if folder in (model, model.parent if model.is_file() else model):
        raise UserError(f"--output_dir={settings.output_dir} is the folder of --model, which would be lost")
    is_full = any((folder / name).is_file() for name in (MODEL_FILE, run_folder.RUN_FILE))
    refuse({
        f"'{settings.output_dir}' holds another model, which would be lost; give another --output_dir":
            is_full and not (folder / REPORT_FILE).is_file(),
        f"'{settings.output_dir}' holds a model that was trained, which --num_train_steps=0 would replace; give "
        "another --output_dir":
            not settings.num_train_steps and (folder / TEXT_PHASE / run_folder.RUN_FILE).is_file(),
    })  # fmt: skip


def _student(settings: CompressSettings, model: Any) -> Any:
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
    masks = "words" in lessons_of(work.teacher)
    train, held_out = (
        make_rows(texts, work.tokenizer, settings.max_seq_length, masks, settings.seed) for texts in work.texts
    )
    lesson = Lesson(work.teacher, make, config, work.tokenizer, work.cut.layers, train, held_out)
    settings = resolved(dataclasses.replace(settings, output_dir=str(folder)))
    return TextDistillation(settings, lesson, work.likeness, devices, started)


def _task(settings: CompressSettings, work: CompressionInput) -> dict[str, Any]:
    # The metrics are the original model's.
    own = {name: value for name, value in work.loaded.task.items() if name not in ("metrics", "distilled_from")}
    # Its vectors resemble the original model's, so it may search that model's index.
    is_taught = settings.num_train_steps and "vectors" in lessons_of(work.teacher)
    return own | ({"distilled_from": work.loaded.identity()} if is_taught else {})


def _write_model(model: Any, work: CompressionInput, task: dict[str, Any], folder: Path) -> None:
    save_keras(model, folder / MODEL_FILE, optimizer=False)
    work.tokenizer.save(folder)
    encoder_of(model).config.to_json(folder / "config.json")
    if task:
        files.write_json(folder / TASK_FILE, task)
    else:
        (folder / TASK_FILE).unlink(missing_ok=True)  # Of another model that was compressed into this folder.
