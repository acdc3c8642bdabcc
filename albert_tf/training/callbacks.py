"""What a training run shows and keeps while it runs. One epoch here is the span between two checkpoints."""

import csv
import math
import time
from pathlib import Path

import keras

from albert_tf.training import model_folder
from tfrecords import files
from tfrecords.errors import UserError
from tfrecords.progress import progress_bar


class Progress(keras.callbacks.Callback):
    """One bar over all steps, with running metrics and ETA; one line at each evaluation."""

    def __init__(self, num_train_steps: int, first_step: int):
        super().__init__()
        self.bar = progress_bar(total=num_train_steps, initial=first_step, unit="step", desc="pre-training")

    def on_train_batch_end(self, batch, logs=None):
        # Reading the metrics waits for the step to finish, so only when they will be shown.
        if self.bar.update() and logs:
            self.bar.set_postfix_str(_summary(logs))

    def on_epoch_end(self, epoch, logs=None):
        held_out = {key.removeprefix("val_"): value for key, value in logs.items() if key.startswith("val_")}
        if held_out:
            self.bar.write(f"step {self.bar.n:>7}  held out: {_summary(held_out)}")


def _summary(logs: dict) -> str:
    accuracies = [
        f"{key.removesuffix('_accuracy').replace('_', ' ')} {float(value):.1%}"
        for key, value in logs.items()
        if key.endswith("_accuracy")
    ]
    return ", ".join([f"loss {float(logs['loss']):.3f}", *accuracies])


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises UserError once the running loss is NaN or infinite, before a checkpoint could keep it."""

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise UserError(
                f"the loss is {logs['loss']} after step {int(self.model.optimizer.iterations)}; "
                "lower --learning_rate or lengthen --num_warmup_steps, in another --output_dir"
            )


class History(keras.callbacks.Callback):
    """`history.csv`: a row of metrics at each checkpoint; rows past the step resumed from are dropped."""

    def __init__(self, path: Path, first_step: int):
        super().__init__()
        self.path = path
        self.rows: list[dict] = []
        if path.is_file():
            with open(path, newline="", encoding="utf-8") as file:
                self.rows = [row for row in csv.DictReader(file) if int(row["step"]) <= first_step]

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        row = {"step": step, "seconds": round(time.monotonic() - self.started, 3)}
        self.rows.append(row | {key: f"{float(value):.6g}" for key, value in logs.items()})
        with files.replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[-1]), restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.rows)


class Checkpoints(keras.callbacks.Callback):
    """`last.keras` with the optimizer, to go on from; `model.keras`: without it, the lowest held-out loss so far."""

    def __init__(self, folder: Path, history: History):
        super().__init__()
        self.folder = folder
        self.best = min((float(row["val_loss"]) for row in history.rows if row.get("val_loss")), default=math.inf)

    def on_epoch_end(self, epoch, logs=None):
        # Without held-out records the newest model is the one to keep.
        loss = logs.get("val_loss", -math.inf)
        if loss <= self.best:
            self.best = loss
            model_folder.save_for_inference(self.model, self.folder / model_folder.MODEL_FILE)
        model_folder.save_model(self.model, self.folder / "last.keras")
