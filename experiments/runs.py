"""One run: a row's recipe trained from a seed, and what came of it."""

import collections
import dataclasses
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints.formats import save_keras
from albert_tf.loading import load
from albert_tf.model_files import MODEL_FILE
from albert_tf.training import run_folder
from albert_tf.training.pretraining import PretrainingSettings, pretrain
from albert_tf.training.pretraining_settings import FREE_ON_RESUME
from experiments.tables import Recipe
from serving.benchmark.report import environment
from tfrecords.base import files
from tfrecords.base.errors import UserError

_RESULT, _CONFIG, _MODEL = "result.json", "config.json", "model"
_SETTINGS = "settings"
# Where things lie decides nothing: what is in them, the recipe and the noted corpus say.
_PATHS = ("train_data", "eval_data", "config")


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
        """Gives what came of the run, by the names that `train` says; None before it is done.

        Raises:
            UserError: the run was trained with other settings than the recipe's: a default of the library has changed,
                which the recipe's name does not tell.
        """
        path = self.folder / _RESULT
        if not path.is_file():
            return None
        if different := self._differences():
            raise UserError(
                f"'{self.model_folder}' was trained with {', '.join(different)}: defaults have changed since; "
                "give another --output_dir"
            )
        return files.read_json(path)

    def _differences(self) -> list[str]:
        """What the run noted of its settings and is not the recipe's; what it did not note counts as equal."""
        paths = self.model_folder / run_folder.RUN_FILE, self.folder / _CONFIG
        began, config = map(files.read_object, paths)
        training = dataclasses.asdict(self.settings(Path()))
        free = {*FREE_ON_RESUME, *_PATHS}
        if not training["gradient_accumulation_steps"]:
            free.add("gradient_accumulation_steps")  # What memory asked for.
        records = began.get("records") or [{}]
        parts = (
            (began, {name: value for name, value in training.items() if name not in free}),
            (config, self.recipe.albert_config().to_dict()),
            (records[0], self.recipe.build_settings().described()),
        )
        return [
            f"{name}={noted[name]!r} (now {value!r})"
            for noted, now in parts
            for name, value in json.loads(json.dumps(now)).items()
            if name in noted and noted[name] != value
        ]

    def measured(self, measure: str, settings: dict[str, Any]) -> dict[str, float] | None:
        """Gives the figures of a measure; None where it was not made, or with other settings.

        Args:
            measure: of `experiments.measures`, by name.
            settings: as `measures.settings_of` says; what the figures were noted without counts as equal.
        """
        path = self._measured(measure)
        if not path.is_file():
            return None
        figures = files.read_json(path)
        noted = figures.pop(_SETTINGS, {})
        return figures if all(noted.get(name, value) == value for name, value in settings.items()) else None

    def note(self, measure: str, figures: dict[str, float], settings: dict[str, Any]) -> None:
        """Keeps the figures of a measure, and the settings that it was made with."""
        files.write_json(self._measured(measure), figures | ({_SETTINGS: settings} if settings else {}))

    def _measured(self, measure: str) -> Path:
        return self.folder / f"measured-{measure}.json"

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
        pretrain(self.settings(data), free=(*FREE_ON_RESUME, *_PATHS))
        # What is measured is the newest model, not the best of its checkpoints: rows are compared after equal updates.
        save_keras(run_folder.load_checkpoint(self.model_folder), self.model_folder / MODEL_FILE, optimizer=False)
        history = run_folder.History(self.model_folder).rows
        held_out = {name.removeprefix("val_"): value for name, value in history[-1].items() if name.startswith("val_")}
        seconds = sum(float(row["seconds"]) for row in history)
        parameters = load(self.model_folder).model.count_params()
        costs = {"updates": int(history[-1]["step"]), "parameters": parameters, "training_seconds": round(seconds, 1)}
        files.write_json(
            self.folder / _RESULT,
            {name: float(value) for name, value in held_out.items()} | costs | {"machine": machine()},
        )
        for name in (run_folder.LAST, run_folder.BEFORE):
            (self.model_folder / name).unlink(missing_ok=True)
        keras.utils.clear_session()


def machine() -> str:
    """Names the CPU, the accelerators that Keras's backend sees, and the versions of it."""
    here = environment()
    parts = [f"{here['cpu']} ({here['usable_cores']} cores)", *_accelerators()]
    parts += [f"{name} {here['packages'][name]}" for name in ("tensorflow", "keras")]
    if keras.backend.backend() == "jax":
        parts.append(f"jax {metadata.version('jax')}")
    return ", ".join(parts)


def _accelerators() -> list[str]:
    if keras.backend.backend() == "jax":
        import jax

        names = [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    else:
        found = tf.config.list_physical_devices("GPU")
        names = [tf.config.experimental.get_device_details(one).get("device_name", one.name) for one in found]
    return [f"{count} x {name}" for name, count in collections.Counter(names).items()]
