"""The second phase of a compression, on the model's task."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.text import finetuning_settings
from albert_tf.loading import Loaded
from albert_tf.model_files import TASK_FILE
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training import finetuning, preparation, run_folder
from albert_tf.training.devices import Devices
from tfrecords.base import files

# Folders of the two phases within the model's.
TEXT_PHASE, TASK_PHASE = "text_phase", "task_phase"
_OF_BOTH_PHASES = ("max_seq_length", "eval_batch_size", "dtype_policy", "jit_compile", "strategy", "seed")
# Both may have been moved; the text phase has checked that they are the same models.
_FREE_ON_RESUME = (*finetuning.FREE_ON_RESUME, "init_from", "teacher")


class TaskPhase:
    """Fine-tunes the model of the text phase on the task; the original model, `whole`, is the teacher."""

    def __init__(self, settings: CompressSettings, whole: Loaded, folder: Path, devices: Devices, started: float):
        self.settings, self.whole, self.devices, self.started = settings, whole.model, devices, started
        self.text_folder, self.folder = folder / TEXT_PHASE, folder / TASK_PHASE

    @property
    def is_done(self) -> bool:
        """Whether the phase has written its last output, the predictions."""
        return bool(self.devices.of_chief((self.folder / finetuning.PREDICTIONS).is_dir()))

    def tuning(self) -> FinetuningSettings:
        settings, whole = self.settings, self.whole
        own: dict[str, Any] = {name: getattr(settings, name) for name in _OF_BOTH_PHASES}
        if getattr(whole, "exit_heads", []):
            own["early_exit"] = True
        if hasattr(whole, "joint"):
            own["span_head"] = "joint" if whole.joint else "plain"
        return finetuning_settings(
            settings,
            init_from=str(self.text_folder),
            keep_head=True,
            output_dir=str(self.folder),
            teacher=settings.model,
            num_train_steps=settings.task_train_steps,
            train_batch_size=settings.task_train_batch_size,
            learning_rate=settings.task_learning_rate,
            distillation_weight=settings.task_distillation_weight,
            **own,
        )

    def check(self) -> None:
        """Checks the phase's inputs before the text phase runs."""
        if (self.folder / run_folder.RUN_FILE).is_file():
            finetuning.check_claims(self.tuning(), None, self.devices, _FREE_ON_RESUME)
        else:
            trial = dataclasses.replace(self.tuning(), init_from=self.settings.model, dryrun=True)
            run = preparation.prepare(trial)
            size = min(run.settings.train_batch_size, len(run.train))
            self.devices.check_batch(size, 1, "--task_train_batch_size")

    def run(self, task: dict[str, Any]) -> bool:
        """Runs the phase; returns False if the run stopped early."""
        hours, limit = (time.monotonic() - self.started) / 3600, self.settings.max_hours
        if not self.is_done and self.devices.of_chief(0 < limit <= hours):
            if self.devices.is_chief:
                print(f"--max_hours={limit:g} are over; the same command goes on with the task")
            return False
        if self.devices.is_chief:
            files.write_json(self.text_folder / TASK_FILE, task)
        left = limit and max(limit - hours, 1e-9)
        tuning = dataclasses.replace(self.tuning(), max_hours=left)
        finetuning.finetune(tuning, devices=self.devices, free=_FREE_ON_RESUME)
        return self.is_done
