"""Pre-training from TFRecords to a model folder, resumable at the last checkpoint."""

import contextlib
import dataclasses
import math
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimizers import create_optimizer
from albert_tf.training import model_folder, resumable
from albert_tf.training.accumulators import without_accumulators
from albert_tf.training.devices import Devices, make_devices, whereabouts
from albert_tf.training.figures import memory_figures
from albert_tf.training.interrupts import StopSignals
from albert_tf.training.memory import fit_to_memory
from albert_tf.training.phases import Phase, read_phases
from albert_tf.training.pretraining_settings import FREE_ON_RESUME, PretrainingSettings, shrunk
from albert_tf.training.report import Report
from albert_tf.training.start import Start, copy_weights, load_pretraining_start
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.manifest import find_records
from tfrecords.tokenizers.loading import load_tokenizer

__all__ = ["PretrainingSettings", "pretrain", "try_all_paths"]

RUN_FILE = "run.json"
# What of the records' manifest decides which examples and masks a step gets.
_DECISIVE_OF_RECORDS = ("masking", "masked_lm_prob", "max_ngram", "whole_words", "pair_task", "seed", "format_version")


def pretrain(settings: PretrainingSettings, devices: Devices | None = None, stop_step: int | None = None) -> Path:
    """Trains until `num_train_steps`, from the last checkpoint if there is one, and returns the model folder.

    Args:
        devices: made from `settings.strategy` where None.
        stop_step: a step to stop after, resumable, as when `max_hours` are over.

    Raises:
        UserError: for data or settings that cannot be trained on, a folder that holds a run with other settings, or
            too many updates that had to be skipped.
    """
    started = time.monotonic()
    devices = devices or make_devices(settings.strategy)
    phases = read_phases(settings, devices.replicas)
    run_file = Path(settings.output_dir) / RUN_FILE
    start = _start(settings, phases)
    config = start.config
    settings, memory = fit_to_memory(settings, config, phases, devices, run_file)
    held_out = [phase.held_out(settings) for phase in phases]
    for read in filter(None, held_out):
        read(1, 1, 0)  # Meets missing or foreign records before anything is written.
    output_dir = files.make_output_dir(settings.output_dir)
    if devices.is_chief:
        _claim(output_dir, settings, config, phases)
    keras.utils.set_random_seed(settings.seed)
    with devices.scope():
        model = resumable.load(output_dir, devices.is_chief) or _new_model(settings, start, phases[0])
        without_accumulators(model)
    step = _number(model.optimizer.iterations)
    devices.check_same(step)
    if step >= settings.num_train_steps:
        print(f"{output_dir} is trained already ({step} steps)")
        return output_dir
    if devices.is_chief:
        action = "Resuming" if step else "Starting"
        print(f"{action} at step {step} of {settings.num_train_steps}: {model.count_params():,} parameters; {memory}")
        if where := whereabouts(settings.strategy, devices):
            print(where)
        start.tokenizer.save(output_dir)
        config.to_json(output_dir / "config.json")
    with StopSignals() as signals:
        run = _Run(settings, devices, model, output_dir, step, started, stop_step, signals)
        for phase, read in zip(phases, held_out):
            if run.step < phase.last_step and not run.stopped:
                run.train(phase, read)
        run.report.close()
    if run.stopped and devices.is_chief:
        print(f"stopped at step {run.step} of {settings.num_train_steps}; the same command goes on from there")
    signals.end()
    return output_dir


def try_all_paths(settings: PretrainingSettings) -> None:
    """--dryrun: trains, evaluates, stops, resumes and loads a tiny model, and leaves no file.

    Raises:
        UserError: as `pretrain`.
    """
    devices = make_devices(settings.strategy)
    config = _start(settings, read_phases(settings, devices.replicas)).config
    with _trial_folder(Path(settings.output_dir), devices) as folder:
        small = shrunk(settings, folder, config, devices.replicas)
        pretrain(small, devices, stop_step=3)
        run = pretrain(small, devices)
        if devices.is_chief:
            model_folder.load_model_folder(run)
            print("dry run: trained, evaluated, stopped, resumed and loaded a tiny model; nothing is kept")


@contextlib.contextmanager
def _trial_folder(output_dir: Path, devices: Devices) -> Iterator[Path]:
    """One new folder for all processes; the chief makes it and removes it."""
    number = devices.sums([secrets.randbelow(2**32) if devices.is_chief else 0])[0]
    name = f".dryrun-{int(number)}"
    with files.trial_folder(output_dir, name) if devices.is_chief else contextlib.nullcontext():
        devices.sums([0])  # No other process makes a folder before the chief has seen what is there.
        yield output_dir / name


def _claim(output_dir: Path, settings: PretrainingSettings, config: AlbertConfig, phases: list[Phase]) -> None:
    """Writes what decides the run into its new folder; refuses a folder whose run had something else."""
    wanted = dataclasses.asdict(settings)
    records = [{key: phase.manifest.get(key) for key in _DECISIVE_OF_RECORDS} for phase in phases]
    files_of_run = {
        "model": config.to_dict(),
        "tokenizer_sha256": phases[0].manifest["tokenizer_sha256"],
        "records": records,
    }
    path = output_dir / RUN_FILE
    if path.is_file():
        found = {"records": records} | files.read_json(path)
        decisive = {key: value for key, value in wanted.items() if key not in FREE_ON_RESUME} | files_of_run
        # A run of before a setting was there had its default.
        found = {field.name: field.default for field in dataclasses.fields(settings)} | found
        different = [key for key in decisive if found.get(key) != decisive[key]]
        if different:
            pairs = ", ".join(f"{key}={found.get(key)!r} (now {decisive[key]!r})" for key in different)
            raise UserError(f"'{output_dir}' holds a run with {pairs}; use the same flags or another --output_dir")
    files.write_json(output_dir / "settings.json", wanted)
    files.write_json(path, wanted | files_of_run)


def _start(settings: PretrainingSettings, phases: list[Phase]) -> Start:
    """What to begin with; of a run that has a checkpoint its configuration alone."""
    records = load_tokenizer(find_records(settings.train_data, "train")[0].parent)
    if settings.init_from and resumable.exists(Path(settings.output_dir)):
        start = Start(
            AlbertConfig.from_dict(files.read_json(Path(settings.output_dir) / RUN_FILE)["model"]), None, None
        )
    else:
        start = load_pretraining_start(settings.init_from, settings.config, records)
    length, limit = max(phase.manifest["max_seq_length"] for phase in phases), start.config.max_position_embeddings
    if length > limit:
        raise UserError(
            f"the records are {length} tokens long, the model takes at most max_position_embeddings={limit}; "
            "raise it in --config or rebuild the records"
        )
    return start._replace(tokenizer=records)


def _new_model(settings: PretrainingSettings, start: Start, phase: Phase) -> AlbertPretrainer:
    encoder = AlbertEncoder(start.config, walk=settings.walk, dtype=settings.dtype_policy, seed=settings.seed)
    # Whatever old pairs the records hold, the label still says whether the segments are in order.
    pair_task = {"none": None, "sop_legacy": "sop"}.get(phase.manifest["pair_task"], phase.manifest["pair_task"])
    model = AlbertPretrainer(encoder, pair_task=pair_task)
    if start.model is not None:
        fresh = copy_weights(start.model, model)
        print(f"Weights of {settings.init_from}; initialised anew: {', '.join(fresh) or 'nothing'}")
    optimizer = create_optimizer(
        settings.optimizer,
        settings.peak_learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.poly_power,
        weight_decay_rate=settings.weight_decay_rate,
        global_clipnorm=settings.global_clipnorm or None,
        gradient_norm=settings.gradient_norm,
    )
    model.compile(optimizer=optimizer, jit_compile=settings.jit_compile)
    optimizer.build(model.trainable_variables)
    return model


def _make_steps(model: AlbertPretrainer, devices: Devices, settings: PretrainingSettings):
    if keras.backend.backend() == "jax":
        from albert_tf.training.jax_steps import JaxSteps

        return JaxSteps(model, devices, settings.gradient_accumulation_steps)
    from albert_tf.training.tensorflow_steps import TensorFlowSteps

    return TensorFlowSteps(model, devices, settings.jit_compile, settings.gradient_accumulation_steps)


def _number(variable) -> int:
    return int(keras.ops.convert_to_numpy(variable))


class _Run:
    """The state of a run between two of its steps."""

    def __init__(self, settings, devices, model, output_dir, step, started, stop_step, signals):
        self.settings, self.devices, self.model, self.output_dir = settings, devices, model, output_dir
        self.step, self.started, self.stop_step, self.signals = step, started, stop_step, signals
        self.stopped = False
        self.steps = _make_steps(model, devices, settings)
        self.report = Report(output_dir if devices.is_chief else None, settings.num_train_steps, step)
        self.best = math.inf

    def train(self, phase: Phase, held_out) -> None:
        """Goes on to the end of the phase, or until the run has to stop."""
        self.best = self._best_of(phase)
        batches = self.steps.batches(phase.training(self.settings, self.step), training=True)()
        held_out = held_out and self.steps.batches(held_out)
        while self.step < phase.last_step and not self.stopped:
            waited = 0.0
            for _ in range(self.settings.gradient_accumulation_steps):
                asked = time.monotonic()
                batch = next(batches)
                waited += time.monotonic() - asked
                self.steps.train(batch)
            self.step += 1
            self.report.step(phase.tokens_per_step, waited)
            saves = self.step % self.settings.save_checkpoints_steps == 0 or self.step == phase.last_step
            if saves or self.step % self.settings.log_steps == 0 or self.step == self.stop_step:
                self._row(held_out, saves)
            elif self.signals.asked and self.devices.processes == 1:
                self._stop_between_rows()

    def _row(self, held_out, saves: bool) -> None:
        figures, seconds = self.steps.results(), self.report.seconds
        figures |= {"skipped": self._check_skipped()} | self.model.optimizer.figures() | memory_figures()
        self.stopped = self.step < self.settings.num_train_steps and self._is_over(seconds)
        if saves or self.stopped:
            figures |= self._evaluate(held_out)
        self.report.row(self.step, figures, seconds)
        if (saves or self.stopped) and self.devices.is_chief:
            self._save(figures.get("val_loss", -math.inf))

    def _stop_between_rows(self) -> None:
        """Saves in a second or two; the sums of the row begun are in the checkpoint, so that no row is cut in two."""
        self.stopped = True
        self.steps.sync()
        resumable.save(self.model, self.output_dir)

    def _is_over(self, seconds: float) -> bool:
        """Whether another row would not fit into the time, the step to stop after is reached, or a signal asks any
        process to end; all agree on it."""
        hours = (time.monotonic() - self.started + seconds) / 3600
        over = self.step == self.stop_step or 0 < self.settings.max_hours < hours
        return bool(self.devices.sums([(over and self.devices.is_chief) or self.signals.asked is not None])[0])

    def _check_skipped(self) -> int:
        skipped, limit = _number(self.model.optimizer.skipped), self.settings.max_skipped_updates
        if skipped > limit:
            raise UserError(
                f"{skipped} updates up to step {self.step} had gradients that are not finite and were skipped, more "
                f"than --max_skipped_updates={limit}; lower --learning_rate or lengthen --num_warmup_steps in another "
                "--output_dir, look for damaged records, or go on from the last checkpoint with a higher limit"
            )
        return skipped

    def _evaluate(self, held_out) -> dict[str, float]:
        if held_out is None:
            return {}
        self.report.waits_for("evaluating")
        for batch in held_out():
            self.steps.evaluate(batch)
        found = self.steps.results()
        if not np.isfinite(found["loss"]):
            raise UserError(
                f"the held-out loss is {found['loss']} after step {self.step}, nothing was saved; "
                "lower --learning_rate or lengthen --num_warmup_steps, in another --output_dir"
            )
        return {f"val_{name}": value for name, value in found.items()}

    def _best_of(self, phase: Phase) -> float:
        """The lowest held-out loss of the phase so far: those of other records do not compare."""
        rows = self.report.history.rows if self.report.history else []
        kept = [float(row["val_loss"]) for row in rows if row.get("val_loss") and int(row["step"]) > phase.first_step]
        return min(kept, default=math.inf)

    def _save(self, loss: float) -> None:
        """`model.keras`: without optimizer, the lowest held-out loss; and a checkpoint to go on from.

        Without held-out records the newest model is the one to keep.
        """
        self.steps.sync()
        # As history.csv rounds it, so that a resumed run decides as an uninterrupted one.
        loss = float(f"{loss:.6g}")
        is_best = loss <= self.best
        self.best = min(loss, self.best)
        with self.devices.alone():  # To write a model Keras makes others.
            if is_best:
                model_folder.save_for_inference(self.model, self.output_dir / model_folder.MODEL_FILE)
            resumable.save(self.model, self.output_dir)
