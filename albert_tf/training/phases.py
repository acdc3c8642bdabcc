"""The phases of pre-training, usually with 128 and then 512 tokens."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.training import Phase
from albert_tf.training.pretraining_settings import PretrainingSettings
from tfrecords.base.errors import UserError
from tfrecords.reader import read_examples
from tfrecords.reading.manifest import check_held_out, read_manifest
from tfrecords.reading.permutations import read_permutations

# Share of tokens from which rows are not packed: rounding the number of packed rows would use up most of the gain.
_FULL = 0.8
# Maximal count of different numbers of rows in packed batches, since each number is compiled. TensorFlow's replicas may
# have different numbers, and each combination is compiled.
_SIZES, _COMBINATIONS = 8, 16


@dataclasses.dataclass(frozen=True)
class RecordsPhase(Phase):
    """A phase whose steps read `batch_size` records each."""

    train_data: str
    eval_data: str
    batch_size: int
    manifest: dict[str, Any]
    replicas: int = 1

    @property
    def permutes(self) -> bool:
        """Whether the records are permuted (XLNet), not masked."""
        return self.manifest.get("objective") == "permutation"

    @property
    def least_rows(self) -> int:
        """The rows per replica in a dry run: 2 or, for permutation records, their number of streams."""
        return self.manifest.get("streams", 2)

    @property
    def fill(self) -> float:
        """The share of tokens in the training rows, as opposed to padding."""
        of_training = self.manifest["splits"]["train"]
        return of_training["tokens"] / (of_training["examples"] * self.manifest["max_seq_length"])

    def training(self, settings: PretrainingSettings, step: int, packed: bool = False) -> Callable:
        """Returns a function (parts, workers, worker) that reads batches from `step` on.

        If `packed`, examples may share rows.
        """
        parts_of_step = settings.gradient_accumulation_steps

        def read(parts: int, workers: int, worker: int):
            parts = parts * parts_of_step
            if self.permutes:
                return read_permutations(
                    self.train_data, self.batch_size, training=True, seed=settings.seed,
                    skip_batches=step - self.first_step, parts=parts, num_workers=workers, worker=worker,
                )  # fmt: skip
            size = self.batch_size // (parts * workers)
            # Each process has graphs of its own.
            sizes = min(_SIZES, int(_COMBINATIONS ** (workers / self.replicas) + 1e-6))
            shared = packed and self.fill < _FULL and sizes > 1
            return read_examples(
                self.train_data, size, training=True, seed=settings.seed,
                # Twice as many as fit on average: more would only widen the tensors.
                examples_per_row=math.ceil(2 / self.fill) if shared else 1,
                row_multiple=math.ceil(size / sizes),
                skip_batches=(step - self.first_step) * parts, num_workers=workers, worker=worker,
            )  # fmt: skip

        return read

    def held_out(self, settings: PretrainingSettings) -> Callable | None:
        """Returns a function (parts, workers, worker) that reads held-out records once, or None."""
        if not self.eval_data:
            return None
        same = {key: self.manifest[key] for key in ("tokenizer_sha256", "max_seq_length", "pair_task")}

        def read(parts: int, workers: int, worker: int):
            options = {"training": False, "num_workers": workers, "worker": worker, "expected": same}
            size = settings.eval_batch_size
            if self.permutes:
                dataset = read_permutations(self.eval_data, size, parts=parts, **options)
            else:
                dataset = read_examples(self.eval_data, max(1, size // (parts * workers)), **options)
            return dataset.take(settings.max_eval_steps * parts or -1)

        return read


def read_phases(settings: PretrainingSettings, replicas: int) -> list[RecordsPhase]:
    """Returns a run's phases; raises UserError if records are incompatible or batches do not divide by `replicas`."""
    end = settings.num_train_steps
    middle = settings.second_from_step or end
    train_data, eval_data, size = settings.train_data, settings.eval_data, settings.train_batch_size
    first = read_manifest(train_data)
    phases = [RecordsPhase(0, middle, train_data, eval_data, size, first, replicas)]
    if settings.second_train_data:
        second = read_manifest(settings.second_train_data)
        for key in ("tokenizer_sha256", "pair_task", "objective"):
            one, other = first.get(key), second.get(key)
            if one != other:
                raise UserError(f"the records of the two phases differ in {key}: {one!r} and {other!r}")
        train_data, eval_data = settings.second_train_data, settings.second_eval_data
        size = settings.second_train_batch_size or size
        phases.append(RecordsPhase(middle, end, train_data, eval_data, size, second, replicas))
    for phase in phases:
        Devices(replicas=replicas).check_batch(phase.batch_size, settings.gradient_accumulation_steps)
    check_held_out([phase.train_data for phase in phases], [phase.eval_data for phase in phases if phase.eval_data])
    return phases
