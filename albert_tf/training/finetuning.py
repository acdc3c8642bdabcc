import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from albert_tf.checkpoints.formats import load_keras, save_keras
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.model_files import MODEL_FILE, TASK_FILE, load_task
from albert_tf.tasks.multilabel import MultilabelTask
from albert_tf.tasks.prediction import predict
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.held_out import TRAINED, write_held_out
from albert_tf.tasks.task import Task
from albert_tf.training.calibration import fitted, thresholds_of
from albert_tf.training.figures import baseline_line, figures_of, lines_of
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.batches import reader
from albert_tf.training.loop.devices import Devices, make_devices
from albert_tf.training.loop.training import Phase, Training
from albert_tf.training.preparation import PreparedRun, Split, digest, prepare
from albert_tf.training.start import copy_weights
from tfrecords.answers.texts import truncation_line
from tfrecords.base import files
from tfrecords.base.errors import refuse

# Rows of a dry run's batch.
_DRYRUN_BATCH = 4
# The folder of a finished model's answers.
PREDICTIONS = "predictions"
# The results of several seeds, in the folder above theirs.
_SUMMARY = "summary.json"
# Settings that a resumed run may change. Paths have no effect, the contents of files do.
FREE_ON_RESUME = (
    *("output_dir", "data_dir", "data_file", "encoding", "tokenizer", "other_tokenizer", "config", "tensorboard"),
    *("eval_batch_size", "strategy", "max_hours", "seeds", "dryrun"),
)


def finetune(settings: FinetuningSettings, task: Task | None = None, devices: Devices | None = None) -> Path | None:
    """Trains a model, from the last checkpoint if there is one, and writes the best model's predictions.

    Each of several seeds trains in a folder `seed-N`; the folder above gets the best one's model and `summary.json`.

    Returns:
        The model folder; None if the run stopped early and can be resumed.

    Raises:
        UserError: unusable data or settings, or a folder with another run.
    """
    started, devices = time.monotonic(), devices or make_devices(settings.strategy)
    if not settings.dryrun:
        return _finetune(settings, task, devices, started)
    with run_folder.trial_folder(Path(settings.output_dir), devices) as folder:
        _finetune(dataclasses.replace(settings, output_dir=str(folder)), task, devices, started)
    if devices.is_chief:
        print("dry run: everything worked; nothing was kept")
    return Path(settings.output_dir)


def _finetune(settings: FinetuningSettings, task: Task | None, devices: Devices, started: float) -> Path | None:
    run = prepare(settings, task)
    size = min(run.settings.train_batch_size, len(run.train))
    parts = run.settings.gradient_accumulation_steps
    devices.check_batch(size, parts)
    if settings.dryrun:
        least = parts * devices.replicas
        few = dataclasses.replace(run.settings, train_batch_size=least * max(1, _DRYRUN_BATCH // least))
        run = run._replace(settings=few)
    output_dir, folders = Path(settings.output_dir), _folders(settings)
    for seed, folder in folders.items():
        if len(folders) > 1 and devices.is_chief:
            print(f"seed {seed}:")
        training = Finetuning(_of_seed(run, seed, folder), devices, started)
        if not training.run():
            return None
        if devices.is_chief:
            training.write_predictions()
    if not devices.is_chief:
        return output_dir
    splits = {split.name: split.rows.truncation for split in (*run.evaluation, *run.test)}
    print(truncation_line({"train": run.train.truncation} | splits))
    if len(folders) > 1:
        summarize(output_dir, folders, run.main_metric)
    # Scores after the few steps of a dry run mean nothing.
    if run.evaluation and not settings.dryrun:
        metrics = (load_task(output_dir) or {}).get("metrics", {})
        if line := baseline_line(run.task, run.train, run.evaluation[0], metrics):
            print(line)
    return output_dir


def _folders(settings: FinetuningSettings) -> dict[int, Path]:
    output_dir, seeds = Path(settings.output_dir), settings.seed_list()
    refuse({
        f"'{output_dir}' holds the run of one seed, which would lose its model; give another --output_dir":
            len(seeds) > 1 and run_folder.has_run(output_dir),
        f"'{output_dir}' holds the runs of several seeds; give them by --seed, or another --output_dir":
            len(seeds) == 1 and (output_dir / _SUMMARY).is_file(),
    })  # fmt: skip
    return {seed: output_dir / f"seed-{seed}" if len(seeds) > 1 else output_dir for seed in seeds}


def _of_seed(run: PreparedRun, seed: int, folder: Path) -> PreparedRun:
    return run._replace(settings=dataclasses.replace(run.settings, seed=seed, seeds=str(seed), output_dir=str(folder)))


class Finetuning(Training):
    """Fine-tunes a task's model."""

    name = "fine-tuning"
    free = FREE_ON_RESUME

    def __init__(self, run: PreparedRun, devices: Devices, started: float):
        super().__init__(run.settings, devices, run.config, run.tokenizer, started)
        self.inputs, self.task = run, run.task
        self.main_metric, self.patience = run.main_metric, run.settings.early_stopping
        self.calibration: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.config.to_dict(),
            "tokenizer_sha256": self.tokenizer.sha256,
            "labels": self.task.describe()["labels"],
            "train_sha256": digest(self.inputs.train),
        }

    def new_model(self) -> keras.Model:
        settings = self.settings
        encoder = AlbertEncoder(
            self.config, dtype=settings.dtype_policy, seed=settings.seed, pooler=self.task.needs_pooler
        )
        model = self.task.create_model(encoder, settings.classifier_dropout, settings.early_exit)
        if self.inputs.source is not None:
            keeps_head = settings.keep_head or self.task.keeps_head
            fresh = copy_weights(self.inputs.source, model if keeps_head else encoder)
            if settings.keep_head and self.devices.is_chief:
                print(f"Weights and head of {settings.init_from}; initialised anew: {', '.join(fresh) or 'nothing'}")
        model.compile(optimizer=self.optimizer(model), **self.task.compile_arguments())
        return model

    def prepare(self) -> None:
        settings, model = self.settings, self.model
        # Metrics and losses make their variables here, outside the steps' graphs.
        model._symbolic_build(data_batch=self.inputs.train.batch([0], settings.max_seq_length))
        if settings.teacher and settings.task != "pairs":
            from albert_tf.training.distillation import distil, load_teacher

            labels = self.task.describe()["labels"]
            teacher = load_teacher(settings.teacher, model, self.tokenizer, settings.max_seq_length, labels)
            distil(model, teacher, settings.distillation_weight)
        if not self.devices.is_chief:
            return
        files.write_json(self.folder / TRAINED, self.inputs.train_keys)
        has_head = self.task.keeps_head or settings.keep_head
        # A new head knows nothing yet.
        if has_head and not (self.step or self.history.rows) and (scores := self.evaluate(self.phases()[0])):
            self.history.append(0, 0.0, scores)

    def kept_model(self) -> keras.Model:
        return self.task.saved(self.model)

    def remark(self) -> str:
        rows, share = len(self.inputs.train), self.inputs.unknown_share
        unmeasured = "" if self.inputs.evaluation else ", no dev file: nothing will be measured"
        return f", {rows:,} rows, {share:.1%} of the tokens unknown to the vocabulary{unmeasured}"

    def data_figures(self) -> dict[str, float]:
        return self.inputs.train.truncation.shares()

    def batches(self, phase: Phase, step: int) -> Callable:
        return reader(self.inputs.train, self.settings, step)

    def evaluate(self, phase: Phase) -> dict[str, float]:
        scores = {}
        for split in self.inputs.evaluation:
            scores |= self._scores_of(split, self._outputs(self.model, split))
        return scores

    def _scores_of(self, split: Split, outputs: list) -> dict[str, float]:
        of_split = self.task.score(split.examples, split.rows, outputs)
        return {f"{split.name}_{name}": value for name, value in of_split.items()}

    def describe(self, figures: dict[str, float]) -> None:
        metrics = {key.removeprefix("dev_"): value for key, value in figures.items() if key.startswith("dev_")}
        task = self.task.describe() | {"max_seq_length": self.settings.max_seq_length, "metrics": metrics}
        files.write_json(self.folder / TASK_FILE, task | self.calibration)

    def write_predictions(self) -> None:
        """Writes the best model's predictions, and its scores if task.json has none."""
        model = self.task.answering(load_keras(self.folder / MODEL_FILE))
        folder = files.make_output_dir(self.folder / PREDICTIONS)
        before = load_task(self.folder) or {}
        names = {"calibration", "threshold"} if "calibration" in before else set()
        self.calibration = {name: before[name] for name in before.keys() & names}
        # A dev file may have been added since the training.
        scores, is_measured = dict[str, float](), bool(before.get("metrics"))
        for split in (*self.inputs.evaluation, *self.inputs.test):
            outputs, is_held_out = self._outputs(model, split), split.name == self.task.evaluation_splits[0]
            if is_held_out and self.settings.calibrate and not self.calibration:
                outputs = self._calibrate(model, split, outputs)
                is_measured = False
            if "threshold" in self.calibration:
                self.task = dataclasses.replace(self.task, threshold=self.calibration["threshold"])
            if not is_measured and split.name in self.task.evaluation_splits:
                scores |= self._scores_of(split, outputs)
            written = self.task.write_predictions(folder, split.name, split.examples, split.rows, outputs)
            if is_held_out:
                written += self._report(split, outputs, folder / "confusion.png")
            if not self.settings.dryrun:
                print("\n".join(f"wrote {path}" for path in written))
        if scores:
            self.describe(scores)

    def _calibrate(self, model: keras.Model, split: Split, outputs: list) -> list:
        """Divides the weights of the heads by a temperature, for all that computes with them; returns the new outputs.

        Probabilities are thus calibrated in predictions, exports of every engine and converted weights alike.
        """
        answered = self.task.answered(split.examples, split.rows, outputs)
        if len(answered) < 2 or not len(answered[0].right):
            return outputs
        self.calibration["calibration"] = fitted(answered)
        temperature = self.calibration["calibration"]["temperature"]
        for head in (model.head, *model.inner_heads) if temperature != 1 else ():
            head.set_weights([weight / temperature for weight in head.get_weights()])
        save_keras(model, self.folder / MODEL_FILE, optimizer=False)
        outputs = [output / temperature for output in outputs]
        if isinstance(self.task, MultilabelTask):
            shares = 1 / (1 + np.exp(-np.array(outputs, np.float64)))
            self.calibration["threshold"] = thresholds_of(shares, self.task.indicators(split.examples))
        return outputs

    def _report(self, split: Split, outputs: list, picture: Path) -> list[Path]:
        """Prints the figures of the rows held out, and writes these rows with the answers."""
        calibration = self.calibration.get("calibration", {})
        answered = self.task.answered(split.examples, split.rows, outputs)
        report = {"rows": len(answered), "metrics": self.task.score(split.examples, split.rows, outputs)}
        report |= figures_of(self.task, split, outputs, calibration.get("temperature", 1.0), picture) | calibration
        if not self.settings.dryrun:
            print("\n".join([*lines_of(report), *self._progress()]))
        return [picture] * ("confusion" in report) + ([write_held_out(self.folder, answered)] if answered else [])

    def _progress(self) -> Iterator[str]:
        rows = [row for row in self.history.rows if row.get(self.main_metric)]
        if rows and not int(rows[0]["step"]):
            scores = (f"{name} {value}" for name, value in rows.pop(0).items() if name.startswith("dev_"))
            yield f"before training: {', '.join(scores)}"
        if rows:
            best = max(rows, key=lambda row: float(row[self.main_metric]))
            yield f"best of {len(rows)} evaluations, step {best['step']}"

    def _outputs(self, model: keras.Model, split: Split) -> list:
        return predict(model, split.rows, self.settings.eval_batch_size, self.settings.max_seq_length)


def summarize(output_dir: Path, folders: dict[int, Path], main_metric: str) -> dict:
    """Writes `summary.json` and the best seed's model into `output_dir`; returns the summary.

    Each metric has `values` by seed, `median`, `min`, `max` and, for several seeds, `standard_deviation`.
    """
    tasks = {seed: load_task(folder) for seed, folder in folders.items()}
    metrics = {
        name: _spread([task["metrics"][name] for task in tasks.values()])
        for name in next(iter(tasks.values()))["metrics"]
    }
    main = main_metric.removeprefix("dev_")
    best = max(tasks, key=lambda seed: tasks[seed]["metrics"].get(main, 0.0))
    if not metrics:
        print(f"without a dev file no seed is better than another: the model of seed {best} is kept")
    summary = {"main_metric": main, "seeds": list(tasks), "best_seed": best, "metrics": metrics}
    run_folder.copy_model(folders[best], output_dir)
    files.write_json(output_dir / _SUMMARY, summary)
    for name, figures in metrics.items():
        print(
            f"{name}: median {figures['median']:.4g} of {len(tasks)} seeds, {figures['min']:.4g}-{figures['max']:.4g}"
        )
    return summary


def _spread(values: list[float]) -> dict:
    spread = {"values": values, "median": statistics.median(values), "min": min(values), "max": max(values)}
    return spread | ({"standard_deviation": statistics.stdev(values)} if len(values) > 1 else {})
