"""The training loop of pre-training, fine-tuning and distillation.

Unlike Keras's `fit`, it resumes within an epoch.
"""

import abc
import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import keras

from albert_tf.checkpoints.formats import save_keras
from albert_tf.config import AlbertConfig
from albert_tf.loading.model_files import MODEL_FILE
from albert_tf.optimizers import AdamWeightDecay, create_optimizer
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.devices import Devices, whereabouts
from albert_tf.training.loop.report import TrainingReport, memory_figures
from albert_tf.training.loop.steps import Steps
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Context that records Ctrl-C and SIGTERM in `asked`; a second signal ends the process at once.

    Outside the main thread it changes nothing.
    """

    def __init__(self):
        self.asked: int | None = None
        self._before = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end(self) -> None:
        """Ends the process as the recorded signal would have; without one, returns."""
        if self.asked == signal.SIGTERM:
            sys.exit(128 + signal.SIGTERM)
        if self.asked is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked is not None, number
        if again:
            self.end()
        # `print` may be what was interrupted.
        os.write(2, b"\nsaving after this step; once more: stop at once\n")


# Default number of updates that may be skipped because a gradient is not finite.
_MAX_SKIPPED = 20
# What helps if the loss or gradients are not finite.
LOWER_RATE = "lower --learning_rate, in another --output_dir"


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps `first_step` to `last_step` - 1 of training, which read batches of the same kind."""

    first_step: int
    last_step: int


class Training(abc.ABC):
    """A training run; subclasses define the model, its batches and its evaluation.

    `started` is the `time.monotonic()` from which the settings' `max_hours` count.

    Attributes:
        free: settings that a resumed run may change.
        main_metric: the metric whose best value (first among equals) selects the model for `model.keras`; without a
            value, that is the newest model.
        log_steps: steps between rows of the history; 0: only at checkpoints.
        patience: evaluations without improvement after which training ends; 0: no limit.
        remedy: what to do if the loss is not finite.
        stopped: whether the run stopped early and can be resumed.
    """

    name = "training"
    free: Sequence[str] = ()
    main_metric = ""
    lower_is_better = False
    log_steps = 0
    stop_step: int | None = None
    patience = 0
    remedy = LOWER_RATE

    def __init__(self, settings: Any, devices: Devices, config: AlbertConfig, tokenizer: Tokenizer, started: float):
        self.settings, self.devices, self.config, self.tokenizer = settings, devices, config, tokenizer
        self.folder, self.started = Path(settings.output_dir), started
        self.stopped = False
        # The duration of the last evaluation and its writes.
        self._evaluation_seconds = 0.0

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """Returns what determines the run besides its settings, such as digests of its data."""

    @abc.abstractmethod
    def new_model(self) -> keras.Model:
        """Returns a new compiled model with its optimizer built."""

    def optimizer(self, model: keras.Model, name: str = "adamw", **options: Any) -> AdamWeightDecay:
        """Returns an optimizer with its variables: if the first step made them, TensorFlow would trace it twice."""
        settings = self.settings
        steps = settings.num_train_steps, settings.num_warmup_steps
        made = create_optimizer(name, settings.learning_rate, *steps, weight_decay=settings.weight_decay, **options)
        made.build(model.trainable_variables)
        return made

    def phases(self) -> Sequence[Phase]:
        """Returns the phases, in order."""
        return [Phase(0, self.settings.num_train_steps)]

    @abc.abstractmethod
    def batches(self, phase: Phase, step: int) -> Callable:
        """Returns a function (parts, workers, worker) that makes a worker's tf.data.Dataset from `step` on.

        Each batch comes as `parts` * gradient_accumulation_steps elements.
        """

    @abc.abstractmethod
    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Returns metrics of held-out rows, or {}."""

    def prepare(self) -> None:  # noqa: B027  (a kind may leave it empty)
        """Prepares the model before training starts or resumes."""

    def check(self, figures: dict[str, float]) -> None:
        """Raises UserError if the figures show that training failed."""
        if figures["skipped"] > _MAX_SKIPPED:
            raise UserError(
                f"{figures['skipped']} updates up to step {self.step} had gradients that are not finite and were "
                f"skipped, more than {_MAX_SKIPPED}; {LOWER_RATE}"
            )
        for name, what in (("loss", "loss"), ("val_loss", "held-out loss")):
            if not math.isfinite(value := figures.get(name, 0.0)):
                raise UserError(f"the {what} is {value} after step {self.step}, nothing was saved; {self.remedy}")

    def describe(self, figures: dict[str, float]) -> None:  # noqa: B027  (a kind may leave it empty)
        """Writes the files that accompany `model.keras`."""

    def kept_model(self) -> keras.Model:
        """Returns the model to save: all or part of the trained one."""
        return self.model

    def remark(self) -> str:
        return ""

    def run(self) -> bool:
        """Trains from the last checkpoint, if any, to the last step; returns False if the run stopped early.

        On a signal, it raises KeyboardInterrupt or SystemExit after saving a checkpoint.
        """
        folder = files.make_output_dir(self.folder)
        with files.locked(folder) if self.devices.is_chief else contextlib.nullcontext():
            return self._run()

    def _run(self) -> bool:
        if self.devices.is_chief:
            run_folder.claim(self.folder, self.settings, self.free, self.facts())
        keras.utils.set_random_seed(self.settings.seed)
        with self.devices.scope():
            self.model = run_folder.load_checkpoint(self.folder, self.devices.is_chief) or self.new_model()
        self.step = self.model.optimizer.updates
        self.devices.check_same(self.step)
        self.history = run_folder.History(self.folder, self.step)
        if self.step >= self.settings.num_train_steps or self._has_stalled():
            self._say(f"{self.folder} is trained already ({self.step} steps)")
            return True
        with self.devices.scope():
            self.prepare()
        self._begin()
        with StopSignals() as self.signals:
            self._train()
        if self.stopped:
            total = self.settings.num_train_steps
            self._say(f"stopped at step {self.step} of {total}; the same command goes on from there")
        self.signals.end()
        return not self.stopped

    def data_figures(self) -> dict[str, float]:
        return {}

    def _say(self, line: str) -> None:
        if self.devices.is_chief:
            print(line)

    def _begin(self) -> None:
        action, total = "Resuming" if self.step else "Starting", self.settings.num_train_steps
        parameters = self.model.count_params()
        self._say(f"{action} at step {self.step} of {total}: {parameters:,} parameters{self.remark()}")
        if where := whereabouts(self.settings.strategy, self.devices):
            self._say(where)
        if self.devices.is_chief:
            self.tokenizer.save(self.folder)
            self.config.to_json(self.folder / "config.json")

    def _train(self) -> None:
        settings = self.settings
        parts = settings.gradient_accumulation_steps
        self.steps = make_steps(self.model, self.devices, settings.jit_compile, parts)
        history = self.history if self.devices.is_chief else None
        self.report = TrainingReport(history, self.name, settings.num_train_steps, self.step, settings.tensorboard)
        self._ended = False
        for phase in self.phases():
            if self.step < phase.last_step and not self._ended:
                self._train_phase(phase)
        self.report.close()

    def _train_phase(self, phase: Phase) -> None:
        # Only scores of this phase: other phases have other held-out rows.
        self.best = max(self._scores(phase.first_step), default=-math.inf)
        batches = self.steps.batches(self.batches(phase, self.step), training=True)()
        while self.step < phase.last_step and not self._ended:
            self._make_step(batches)
            saves = self.step % self.settings.save_checkpoints_steps == 0 or self.step == phase.last_step
            if saves or self.step == self.stop_step or (self.log_steps and self.step % self.log_steps == 0):
                self._row(phase, saves)
            elif self._must_hurry():
                # The checkpoint takes a second or two. With it, the sums of the metrics are stored, so that the row of
                # the history covers all its steps.
                self.stopped = self._ended = True
                self._save_checkpoint()

    def _must_hurry(self) -> bool:
        return self.signals.asked is not None and self.devices.processes == 1

    def _make_step(self, batches: Iterator) -> None:
        parts = []
        for _ in range(self.steps.parts):
            asked = time.monotonic()
            batch = next(batches)
            waited = time.monotonic() - asked
            rows, length = self.steps.shape(batch)
            self.report.batch(rows, length, waited)
            parts.append(batch)
        self.steps.train(*parts)
        self.step += 1
        self.report.step(self.steps.running if self.devices.processes == 1 else None)

    def _row(self, phase: Phase, saves: bool) -> None:
        figures, seconds = self.steps.results(), self.report.seconds
        optimizer = self.model.optimizer
        figures |= {"skipped": int(keras.ops.convert_to_numpy(optimizer.skipped))} | optimizer.figures()
        figures |= memory_figures() | self.data_figures()
        self.check(figures)
        self.stopped = self._ended = self.step < self.settings.num_train_steps and self._is_over(seconds, saves)
        evaluates, held_out, began = saves or (self.stopped and not self._must_hurry()), {}, time.monotonic()
        if evaluates:
            self.report.waits_for("evaluating")
            held_out = self._evaluated(phase)
            self.check(figures | held_out)
        self.report.row(self.step, figures, held_out, seconds)
        if evaluates and self.devices.is_chief:
            self._save(figures | held_out)
        if evaluates:
            self._evaluation_seconds = time.monotonic() - began
        elif self.stopped:
            self._save_checkpoint()
        if self.patience and self.devices.of_chief(self._has_stalled()):
            self._say(f"no better {self.main_metric} in {self.patience} evaluations: stopped early")
            self.stopped, self._ended = False, True

    def _evaluated(self, phase: Phase) -> dict[str, float]:
        # On a signal or error, a checkpoint is saved, but not at the last step: the run would seem finished.
        keeps = self.devices.is_chief and self.step < self.settings.num_train_steps
        if keeps and self._must_hurry():
            self._save_checkpoint()
        try:
            return self.evaluate(phase)
        except Exception:
            if keeps:
                self.model.reset_metrics()
                run_folder.save_checkpoint(self.model, self.folder)
            raise

    def _save_checkpoint(self) -> None:
        run_folder.save_checkpoint(self.model, self.folder)

    def _is_over(self, seconds: float, evaluates: bool) -> bool:
        evaluations = (1 + evaluates) * self._evaluation_seconds
        hours = (time.monotonic() - self.started + seconds + evaluations) / 3600
        over = self.step == self.stop_step or 0 < self.settings.max_hours < hours
        return bool(self.devices.sums([(over and self.devices.is_chief) or self.signals.asked is not None])[0])

    def _scores(self, after: int = 0) -> list[float]:
        # Rounded as in history.csv, so that resumed runs decide the same.
        scores = [self._score(row) for row in self.history.rows if int(row["step"]) > after]
        return [score for score in scores if score is not None]

    def _score(self, figures: dict[str, Any]) -> float | None:
        value = figures.get(self.main_metric, "")
        if value == "":
            return None
        return float(f"{float(value):.6g}") * (-1 if self.lower_is_better else 1)

    def _has_stalled(self) -> bool:
        scores = self._scores()
        return 0 < self.patience < len(scores) and max(scores[-self.patience :]) <= max(scores[: -self.patience])

    def _save(self, figures: dict[str, float]) -> None:
        score = self._score(figures)
        if score is None or score > self.best:
            self.best = -math.inf if score is None else score
            save_keras(self.kept_model(), self.folder / MODEL_FILE, optimizer=False)
            self.describe(figures)
        run_folder.save_checkpoint(self.model, self.folder)


def make_steps(model: keras.Model, devices: Devices, jit_compile: bool, parts: int) -> Steps:
    """Returns a model's training and evaluation steps."""
    if (parts > 1 or devices.strategy is not None) and not hasattr(model, "loss_divisors"):
        raise UserError(
            f"a {type(model).__name__} has no loss_divisors, which a batch in parts or over several devices needs; "
            "leave out --gradient_accumulation_steps and --strategy, or build on the models of albert_tf"
        )
    return Steps(model, devices, jit_compile, parts)
