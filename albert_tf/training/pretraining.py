import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.config.extension import resolve_walk
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.loading.load import load
from albert_tf.models import permutation
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.training.evaluation import trivial_baselines
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.devices import Devices, make_devices
from albert_tf.training.loop.memory import memory_advice
from albert_tf.training.loop.training import Training
from albert_tf.training.phases import RecordsPhase, read_phases
from albert_tf.training.pretraining_settings import FREE_ON_RESUME, PretrainingSettings, shrunk
from albert_tf.training.start import Start, check_length, copy_weights, load_pretraining_start
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.reader import open_records
from tfrecords.reading.manifest import find_records
from tfrecords.tokenizers.loading import load_tokenizer

__all__ = ["PretrainingSettings", "pretrain", "try_all_paths"]

# Keys of the records' manifest that determine the examples and masks of a step.
_DECISIVE_OF_RECORDS = ("masking", "masked_lm_prob", "max_ngram", "whole_words", "pair_task", "seed")


def pretrain(settings: PretrainingSettings, devices: Devices | None = None, stop_step: int | None = None) -> Path:
    """Trains until `num_train_steps`, from the last checkpoint if there is one, and returns the model folder.

    The run stops after `stop_step`, as it does after `max_hours`.

    Raises:
        UserError: unusable data or settings.
    """
    started = time.monotonic()
    devices = devices or make_devices(settings.strategy)
    training = Pretraining(settings, devices, started)
    training.stop_step = stop_step
    training.run()
    return training.folder


class Pretraining(Training):
    """Pre-trains a model on TFRecords."""

    name = "pre-training"
    free = FREE_ON_RESUME
    main_metric = "val_loss"
    lower_is_better = True

    def __init__(self, settings: PretrainingSettings, devices: Devices, started: float):
        phases = read_phases(settings, devices.replicas)
        self.start = _start(settings, phases)
        self.memory = memory_advice(settings, self.start.config, phases, devices)
        super().__init__(settings, devices, self.start.config, self.start.tokenizer, started)
        self.log_steps = settings.log_steps
        self._phases = phases
        self._held_out = {}
        # Missing or truncated records, also of the second phase, are reported before anything is written.
        for phase in phases:
            open_records(phase.train_data, True, None)
        for read in filter(None, (phase.held_out(settings) for phase in phases)):
            read(1, 1, 0)
        for phase in phases if phases[0].permutes else ():
            phase.training(settings, phase.first_step)(devices.replicas, 1, 0)  # It also reports impossible batches.

    def facts(self) -> dict[str, Any]:
        manifests = [phase.manifest for phase in self._phases]
        return {
            "model": self.config.to_dict(),
            "tokenizer_sha256": manifests[0]["tokenizer_sha256"],
            "records": [self._of_records(manifest) for manifest in manifests],
        }

    def _of_records(self, manifest: dict[str, Any]) -> dict[str, Any]:
        keys = _DECISIVE_OF_RECORDS + permutation.MANIFEST_KEYS * self._phases[0].permutes
        return {key: manifest.get(key) for key in keys}

    def new_model(self) -> AlbertPretrainer:
        settings, start = self.settings, self.start
        permutes, pair_task = self._phases[0].permutes, self._phases[0].manifest["pair_task"]
        encoder = AlbertEncoder(
            start.config,
            walk=settings.walk,
            dtype=settings.dtype_policy,
            seed=settings.seed,
            # Without a pair task nothing trains a pooler, and published models that had none lack it.
            pooler=pair_task != "none" or not (start.config.position_offset or permutes or start.config.pooler_norm),
        )
        # Whatever old pairs the records hold, the label still says whether the segments are in order.
        pair_task = {"none": None, "sop_legacy": "sop"}.get(pair_task, pair_task)
        model = (permutation.XlnetPretrainer if permutes else AlbertPretrainer)(encoder, pair_task)
        if start.model is not None:
            fresh = copy_weights(start.model, model)
            print(f"Weights of {settings.init_from}; initialised anew: {', '.join(fresh) or 'nothing'}")
            if start.vocabulary:
                print(start.vocabulary)
        clipnorm = settings.global_clipnorm or None
        optimizer = self.optimizer(model, settings.optimizer, beta_2=settings.beta_2, global_clipnorm=clipnorm)
        model.compile(optimizer=optimizer, jit_compile=settings.jit_compile)
        return model

    def prepare(self) -> None:
        settings = self.settings
        permutation.begin_memory(self.model, settings)
        if self.devices.is_chief and settings.eval_data and not self._phases[0].permutes:
            baselines = trivial_baselines(settings.train_data, settings.eval_data, 64, settings.max_eval_steps, 100)
            shown = (f"{name} {value:.2%}" for name, value in baselines.items())
            print(f"always the most frequent answer: {', '.join(shown)}")

    @property
    def _packed(self) -> bool:
        return self.settings.pack_rows and all(one.packs for one in self.config.extensions)

    def remark(self) -> str:
        return f"; {self.memory}"

    def phases(self) -> list[RecordsPhase]:
        return self._phases

    def batches(self, phase: RecordsPhase, step: int) -> Callable:
        return phase.training(self.settings, step, self._packed)

    def evaluate(self, phase: RecordsPhase) -> dict[str, float]:
        read = phase.held_out(self.settings)
        if read is None:
            return {}
        if phase.first_step not in self._held_out:
            self._held_out[phase.first_step] = self.steps.batches(read)
        for batch in self._held_out[phase.first_step]():
            self.steps.evaluate(batch)
        return {f"val_{name}": value for name, value in self.steps.results().items()}


def try_all_paths(settings: PretrainingSettings) -> None:
    """Runs --dryrun: trains, evaluates, stops, resumes and loads a tiny model."""
    devices = make_devices(settings.strategy)
    phases = read_phases(settings, devices.replicas)
    config = _start(settings, phases).config
    with run_folder.trial_folder(Path(settings.output_dir), devices) as folder:
        small = shrunk(settings, folder, config, devices.replicas, phases[0].least_rows)
        pretrain(small, devices, stop_step=3)
        run = pretrain(small, devices)
        if devices.is_chief:
            load(run)
            print("dry run: trained, evaluated, stopped, resumed and loaded a tiny model; nothing is kept")


def _start(settings: PretrainingSettings, phases: list[RecordsPhase]) -> Start:
    records = load_tokenizer(find_records(settings.train_data, "train")[0].parent)
    folder, length = Path(settings.output_dir), max(phase.manifest["max_seq_length"] for phase in phases)
    if settings.init_from and run_folder.has_checkpoint(folder):
        began = files.read_object(folder / run_folder.RUN_FILE).get("model")
        if not isinstance(began, dict):
            raise UserError(f"'{folder / run_folder.RUN_FILE}' does not describe a run; give another --output_dir")
        start = Start(AlbertConfig.from_dict(began), None, None)
    else:
        start = load_pretraining_start(settings.init_from, settings.config, records, settings.tokenizer, length)
    check_length(length, start.config, settings.init_from)
    config = resolve_walk(start.config, settings.walk)[0]
    if phases[0].permutes:
        config = permutation.with_memory(config, settings, phases)
    elif settings.memory_length:
        raise UserError(f"--memory_length={settings.memory_length} is for records of permutations; leave it out")
    return start._replace(config=config, tokenizer=records)
