"""Reports a run's progress in a bar, history.csv and TensorBoard."""

import resource
import shutil
import sys
import time
from collections.abc import Callable

import tensorflow as tf

from albert_tf.training.loop.run_folder import History
from tfrecords.base.script import progress_bar


class TrainingReport:
    """Shows and writes a run's figures; without a `history`, does nothing."""

    def __init__(self, history: History | None, name: str, num_train_steps: int, first_step: int, boards: bool):
        self.history = history
        self._boards = {}
        if history and boards:
            # Written anew from the history, which has no steps that a resumed run repeats.
            folder = history.path.parent / "tensorboard"
            shutil.rmtree(folder, ignore_errors=True)
            for board in ("train", "validation"):
                self._boards[board] = tf.summary.create_file_writer(str(folder / board))
            for row in history.rows:
                figures = {key: float(value) for key, value in row.items() if value and key not in ("step", "seconds")}
                self._plot(int(row["step"]), figures)
        self.bar = progress_bar(
            total=num_train_steps, initial=first_step, unit="step", desc=name, disable=history is None
        )
        self._figures = ""
        self._restart()
        self.waits_for("compiling the first step")

    def waits_for(self, what: str) -> None:
        """Shows in the progress bar what the run waits for."""
        self._waits = True
        self.bar.set_postfix_str(f"{what} ...")

    def batch(self, rows: int, length: int, waited: float) -> None:
        """Counts a batch: its `rows` on all devices, its `length` with padding, the seconds `waited` for it."""
        self._tokens += rows * length
        self._waited += waited

    def step(self, running: Callable[[], dict[str, float]] | None) -> None:
        """Counts an update; `running` returns the figures to show."""
        if self.bar.update() or self._waits:
            self._waits = False
            self._figures = _summary(running()) if running else self._figures
            self._show()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def row(self, step: int, figures: dict[str, float], held_out: dict[str, float], seconds: float) -> None:
        """Shows and writes the figures since the last call."""
        speeds = {"tokens_per_second": self._tokens / seconds, "input_wait": self._waited / seconds}
        figures = figures | speeds
        self._figures = _summary(figures)
        if self.history:
            self.history.append(step, seconds, figures | held_out)
        self._plot(step, figures | held_out)
        held_out = {key.removeprefix("val_"): value for key, value in held_out.items()}
        if held_out and not self.bar.disable:
            self.bar.write(f"step {step:>7}  held out: {_summary(held_out)}")
        self._show()
        self._restart()

    def close(self) -> None:
        self.bar.close()
        for board in self._boards.values():
            board.close()

    def _plot(self, step: int, figures: dict[str, float]) -> None:
        for board, writer in self._boards.items():
            with writer.as_default():
                for key, value in figures.items():
                    if key.startswith("val_") == (board == "validation"):
                        tf.summary.scalar(key.removeprefix("val_"), value, step)

    def _restart(self) -> None:
        self._started, self._tokens, self._waited = time.monotonic(), 0, 0.0

    def _show(self) -> None:
        seconds = max(self.seconds, 1e-9)
        speed = f"{self._tokens / seconds:,.0f} tokens/s, input wait {self._waited / seconds:.1%}"
        self.bar.set_postfix_str(", ".join(filter(None, (self._figures, speed))))


def _summary(figures: dict[str, float]) -> str:
    if "loss" not in figures:
        return ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
    accuracies = [
        f"{key.removesuffix('_accuracy').replace('_', ' ')} {value:.1%}"
        for key, value in figures.items()
        if key.endswith("accuracy")
    ]
    skipped = [f"{figures['skipped']:.0f} updates skipped"] if figures.get("skipped") else []
    loss = figures["loss"]
    # A mean squared error of unit vectors is far below 0.001.
    return ", ".join([f"loss {loss:.3f}" if abs(loss) >= 0.1 else f"loss {loss:.3g}", *accuracies, *skipped])


def memory_figures() -> dict[str, float]:
    """Returns peak memory in GiB: memory_gb of this process, device_memory_gb of the first GPU."""
    # Linux counts kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 2**10
    figures = {"memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30}
    device = _device_peak()
    return figures if device is None else figures | {"device_memory_gb": device / 2**30}


def _device_peak() -> int | None:
    gpus = tf.config.list_logical_devices("GPU")
    return tf.config.experimental.get_memory_info(f"GPU:{gpus[0].name.rsplit(':', 1)[1]}")["peak"] if gpus else None
