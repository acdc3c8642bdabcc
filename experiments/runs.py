"""One run: a row's recipe trained from a seed, and what came of it."""

import csv
import dataclasses
import gc
from pathlib import Path
from typing import Any

import keras

from albert_tf.checkpoints.formats import save_keras
from albert_tf.loading import load
from albert_tf.model_files import MODEL_FILE
from albert_tf.training import run_folder
from albert_tf.training.pretraining import PretrainingSettings, pretrain
from experiments.tables import Recipe
from serving.benchmark.report import environment
from tfrecords.base import files

_RESULT, _CONFIG, _MODEL = "result.json", "config.json", "model"
_MEASURED = "measured-"


@dataclasses.dataclass(frozen=True)
class Run:
    """Holds a run, whose folder is named by its recipe: tables that ask for the same run share it.

    Attributes:
        recipe: what is trained.
        seed: of weights, dropout, masks and the order of examples.
        runs: the folder of all runs.
    """

    recipe: Recipe
    seed: int
    runs: Path

    @property
    def folder(self) -> Path:
        """Gives the run's folder."""
        return self.runs / self.recipe.key / f"seed-{self.seed}"

    @property
    def model_folder(self) -> Path:
        """Gives the folder that training writes."""
        return self.folder / _MODEL

    @property
    def result(self) -> dict[str, Any] | None:
        """Gives what came of the run, by the names that `train` says; None before it is done."""
        path = self.folder / _RESULT
        return files.read_json(path) if path.is_file() else None

    @property
    def measured(self) -> dict[str, dict[str, float]]:
        """Gives the figures of the measures of `experiments.measures` that were made, by their names."""
        paths = self.folder.glob(f"{_MEASURED}*.json")
        return {path.stem.removeprefix(_MEASURED): files.read_json(path) for path in sorted(paths)}

    def note(self, measure: str, figures: dict[str, float]) -> None:
        """Keeps the figures of a measure."""
        files.write_json(self.folder / f"{_MEASURED}{measure}.json", figures)

    def settings(self, data: Path) -> PretrainingSettings:
        """Gives the settings of its training on the examples in the folder `data`."""
        return self.recipe.training_settings(self.model_folder, data, self.folder / _CONFIG, self.seed)

    def train(self, data: Path) -> None:
        """Trains to the end, from the last checkpoint if there is one, and notes the result.

        That is the held-out figures after the last update by the names of history.csv without val_, and `updates`,
        `parameters`, `training_seconds` (of the updates alone) and `machine`. The checkpoints to go on from are then
        removed. A run that is done by now is left as it is.

        Args:
            data: the folder of the examples.

        Raises:
            UserError: training cannot go on; another call tries again from the last checkpoint.
            LockedError: another process is at it.
            KeyboardInterrupt: as training raises it; another call goes on.
        """
        with files.locked(files.make_output_dir(self.folder)):
            if self.result is None:
                self._train(data)

    def _train(self, data: Path) -> None:
        self.recipe.albert_config().to_json(self.folder / _CONFIG)
        pretrain(self.settings(data))
        # What is measured is the newest model, not the best of its checkpoints: rows are compared after equal updates.
        save_keras(run_folder.load_checkpoint(self.model_folder), self.model_folder / MODEL_FILE, optimizer=False)
        with open(self.model_folder / run_folder.HISTORY_FILE, newline="", encoding="utf-8") as file:
            history = list(csv.DictReader(file))
        held_out = {name.removeprefix("val_"): value for name, value in history[-1].items() if name.startswith("val_")}
        seconds = sum(float(row["seconds"]) for row in history)
        parameters = load(self.model_folder).model.count_params()
        costs = {"updates": int(history[-1]["step"]), "parameters": parameters, "training_seconds": round(seconds, 1)}
        files.write_json(
            self.folder / _RESULT,
            {name: float(value) for name, value in held_out.items()} | costs | {"machine": _machine()},
        )
        for name in (run_folder.LAST, run_folder.BEFORE):
            (self.model_folder / name).unlink(missing_ok=True)
        forget_graphs()


def _machine() -> str:
    here = environment()
    versions = [f"{name} {here['packages'][name]}" for name in ("tensorflow", "keras")]
    return f"{here['cpu']} ({here['usable_cores']} cores), {', '.join(versions)}"


def forget_graphs() -> None:
    """Frees what Keras and TensorFlow keep of the models made before in this process."""
    keras.utils.clear_session()
    gc.collect()
