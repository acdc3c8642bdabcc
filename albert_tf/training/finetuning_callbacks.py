"""What fine-tuning measures, shows and keeps while it runs. One epoch of `fit` is the span between two checkpoints."""

import math
from collections.abc import Callable
from pathlib import Path

import keras

from albert_tf.training import model_folder, resumable
from albert_tf.training.callbacks import History
from albert_tf.training.interrupts import StopSignals
from tfrecords.base import files
from tfrecords.base.script import progress_bar


class Evaluation(keras.callbacks.Callback):
    """Adds the scores of the evaluation splits to the logs, for the callbacks after it."""

    def __init__(self, evaluate: Callable[[keras.Model], dict[str, float]]):
        super().__init__()
        self.evaluate = evaluate

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self.evaluate(self.model))


class Progress(keras.callbacks.Callback):
    """One bar over all steps with the running loss and ETA; a line at each evaluation.

    parts: calls of `fit` for a step.
    """

    def __init__(self, num_train_steps: int, first_step: int, parts: int):
        super().__init__()
        self.parts = parts
        self.bar = progress_bar(total=num_train_steps, initial=first_step, unit="step", desc="fine-tuning")
        self.bar.set_postfix_str("compiling the first step ...")

    def on_train_batch_end(self, batch, logs=None):
        # Reading the loss waits for the step to finish, so only when it will be shown.
        if (batch + 1) % self.parts == 0 and self.bar.update() and logs:
            self.bar.set_postfix_str(f"loss {float(logs['loss']):.3f}")

    def on_epoch_end(self, epoch, logs=None):
        self.bar.write(f"step {self.bar.n:>7}  {', '.join(f'{key} {value:.4g}' for key, value in logs.items())}")


class Checkpoints(keras.callbacks.Callback):
    """`model.keras` and `task.json`: the best by the main metric so far; and a checkpoint to go on from.

    describe: what task.json says beside the metrics, asked after each evaluation.

    Without evaluation files the newest model is the best.
    """

    def __init__(self, folder: Path, history: History, main_metric: str, describe: Callable[[], dict]):
        super().__init__()
        self.folder, self.main_metric, self.describe = folder, main_metric, describe
        kept = [float(row[main_metric]) for row in history.rows if row.get(main_metric)]
        self.best = max(kept, default=-math.inf)

    def on_epoch_end(self, epoch, logs=None):
        value = logs.get(self.main_metric, math.inf)
        # History rounds what it keeps, and a resumed run must decide as the one that was interrupted.
        if (value := float(f"{value:.6g}")) > self.best or self.main_metric not in logs:
            self.best = value
            model_folder.save_for_inference(self.model, self.folder / model_folder.MODEL_FILE)
            scores = {key.removeprefix("dev_"): value for key, value in logs.items() if key.startswith("dev_")}
            files.write_json(self.folder / model_folder.TASK_FILE, self.describe() | {"metrics": scores})
        resumable.save(self.model, self.folder)


class StopEarly(keras.callbacks.Callback):
    """Ends the run after `patience` evaluations in a row without a better score, 0: never."""

    def __init__(self, history: History, main_metric: str, patience: int):
        super().__init__()
        self.history, self.main_metric, self.patience = history, main_metric, patience

    def on_epoch_end(self, epoch, logs=None):
        if has_stalled(self.history.rows, self.main_metric, self.patience):
            print(f"no better {self.main_metric} in {self.patience} evaluations: stopped early")
            self.model.stop_training = True


def has_stalled(rows: list[dict], main_metric: str, patience: int) -> bool:
    """Whether the last `patience` rows of a history brought nothing better than those before."""
    scores = [float(row[main_metric]) for row in rows if row.get(main_metric)]
    return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])


class StopWhenAsked(keras.callbacks.Callback):
    """Saves after the step in which a signal came, and ends the run.

    parts: calls of `fit` for a step.
    """

    def __init__(self, folder: Path, signals: StopSignals, parts: int):
        super().__init__()
        self.folder, self.signals, self.parts = folder, signals, parts

    def on_train_batch_end(self, batch, logs=None):
        if self.signals.asked is None or (batch + 1) % self.parts:
            return
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        resumable.save(self.model, self.folder)
        print(f"stopped at step {self.model.optimizer.updates}; the same command goes on from there")
        self.signals.end()
