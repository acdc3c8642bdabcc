"""What `fit` keeps and checks while it runs. One epoch here is the span between two checkpoints."""

import math
import time
from pathlib import Path

import keras

from albert_tf.training.figures import memory_figures
from albert_tf.training.history import HistoryFile
from tfrecords.base.errors import UserError


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises UserError once the running loss is NaN or infinite, before a checkpoint could keep it."""

    def on_epoch_end(self, epoch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise UserError(
                f"the loss is {logs['loss']} after step {self.model.optimizer.updates}; "
                "lower --learning_rate or lengthen --num_warmup_steps, in another --output_dir"
            )


class Figures(keras.callbacks.Callback):
    """Adds to the logs what the last update went by, and memory, for the callbacks after it."""

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self.model.optimizer.figures() | memory_figures())


class History(keras.callbacks.Callback):
    """A row of `history.csv` at each checkpoint."""

    def __init__(self, path: Path, first_step: int):
        super().__init__()
        self.file = HistoryFile(path, first_step)

    @property
    def rows(self) -> list[dict]:
        return self.file.rows

    def on_epoch_begin(self, epoch, logs=None):
        self.started = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.file.append(self.model.optimizer.updates, time.monotonic() - self.started, logs)
