"""What a pre-training run shows and writes of its course: a bar, history.csv, TensorBoard."""

import time
from pathlib import Path

import tensorflow as tf

from albert_tf.training.history import HistoryFile
from tfrecords.base.script import progress_bar


class Report:
    """Figures of training since the last row, on screen and in files. folder: None to show and write nothing."""

    def __init__(self, folder: Path | None, num_train_steps: int, first_step: int):
        self.history = HistoryFile(folder / "history.csv", first_step) if folder else None
        self._boards = {}
        if folder:
            for name in ("train", "validation"):
                self._boards[name] = tf.summary.create_file_writer(str(folder / "tensorboard" / name))
        self.bar = progress_bar(
            total=num_train_steps, initial=first_step, unit="step", desc="pre-training", disable=folder is None
        )
        self._figures = ""
        self._restart()
        self.waits_for("compiling the first step")

    def waits_for(self, what: str) -> None:
        """Says beside the bar why it stands still."""
        self._waits = True
        self.bar.set_postfix_str(f"{what} ...")

    def step(self, tokens: int, waited: float) -> None:
        """Counts an update on `tokens` tokens, for whose batch the program waited so many seconds."""
        self._tokens += tokens
        self._waited += waited
        if self.bar.update() or self._waits:
            self._waits = False
            self._show()

    @property
    def seconds(self) -> float:
        """Since the last row."""
        return time.monotonic() - self._started

    def row(self, step: int, figures: dict[str, float], seconds: float) -> None:
        """Figures of the steps since the last row, which took `seconds`; held-out ones begin with val_."""
        speed = {"tokens_per_second": self._tokens / seconds, "input_wait": self._waited / seconds}
        self._figures = _summary({key: value for key, value in figures.items() if not key.startswith("val_")})
        if self.history:
            self.history.append(step, seconds, figures | speed)
        for key, value in (figures | speed).items() if self._boards else ():
            with self._boards["validation" if key.startswith("val_") else "train"].as_default():
                tf.summary.scalar(key.removeprefix("val_"), value, step)
        held_out = {key.removeprefix("val_"): value for key, value in figures.items() if key.startswith("val_")}
        if held_out and not self.bar.disable:
            self.bar.write(f"step {step:>7}  held out: {_summary(held_out)}")
        self._show()
        self._restart()

    def close(self) -> None:
        self.bar.close()
        for board in self._boards.values():
            board.close()

    def _restart(self) -> None:
        self._started, self._tokens, self._waited = time.monotonic(), 0, 0.0

    def _show(self) -> None:
        seconds = max(self.seconds, 1e-9)
        speed = f"{self._tokens / seconds:,.0f} tokens/s, input wait {self._waited / seconds:.1%}"
        self.bar.set_postfix_str(", ".join(filter(None, (self._figures, speed))))


def _summary(figures: dict[str, float]) -> str:
    accuracies = [
        f"{key.removesuffix('_accuracy').replace('_', ' ')} {value:.1%}"
        for key, value in figures.items()
        if key.endswith("_accuracy")
    ]
    skipped = [f"{figures['skipped']:.0f} updates skipped"] if figures.get("skipped") else []
    return ", ".join([f"loss {figures['loss']:.3f}", *accuracies, *skipped])
