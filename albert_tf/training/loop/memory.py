"""Estimates the memory of a pre-training step."""

from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.analysis.cost import parameters, work_of
from albert_tf.config import AlbertConfig
from albert_tf.training.loop.devices import Devices
from albert_tf.training.phases import RecordsPhase
from albert_tf.training.pretraining_settings import PretrainingSettings

GIB = 2**30
# The share of free memory to advise: the estimate is right within about a fifth.
_SHARE = 0.8

# Fitted to peaks of the process's memory (docs/results/training_speed.md#memory) for ALBERT-base, BERT-base and a small
# model, rows of 128 and 512 tokens, on a CPU.
_RUNTIME = 1.2 * GIB
# Weights, two moments, gradients, and temporary values of an update.
_COPIES = 6
# Numbers kept for the backward pass: of each token and block so many times hidden_size and intermediate_size, of each
# pair of tokens and head, of each predicted word and vocabulary entry.
_HIDDEN, _INTERMEDIATE, _ATTENTION, _VOCABULARY = 8.0, 3.1, 2.1, 2.0
# The same number for a "glu" gate (times intermediate_size), fitted to a small model on a CPU.
_GATE = 1.6
_OF_POLICY = {"float32": 1.0, "mixed_bfloat16": 0.7}


class Need(NamedTuple):
    """Bytes of a training step: `fixed`, plus `row` for each row."""

    fixed: float
    row: float

    def of(self, rows: int) -> float:
        return self.fixed + self.row * rows


def step_need(config: AlbertConfig, manifest: dict[str, Any], settings: PretrainingSettings) -> Need:
    """Estimates a step's memory for the rows of records."""
    length, predictions = manifest["max_seq_length"], manifest["max_predictions_per_seq"]
    work = work_of(config, length, predictions if manifest.get("objective") == "permutation" else 0)
    gate = _GATE * (config.feed_forward == "glu")
    block = work.length * _HIDDEN * config.hidden_size
    block += work.length * (_INTERMEDIATE + gate) * config.intermediate_size
    block += _ATTENTION * config.num_attention_heads * work.stored_pairs / config.num_steps
    # Recomputing keeps each block's input, and all of one block at a time.
    inputs = work.length * config.hidden_size
    kept = block + work.stored_steps * inputs if settings.walk == "recompute" else work.stored_steps * block
    numbers = kept + _VOCABULARY * predictions * config.vocab_size
    copies = _COPIES + (settings.gradient_accumulation_steps != 1)
    return Need(_RUNTIME + copies * 4 * parameters(config).total, 4 * numbers * _OF_POLICY[settings.dtype_policy])


def free_memory() -> int | None:
    """Returns the bytes that this process may use, including what it uses now; None if unknown."""
    of_machine = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    limits = [limit for limit in (of_machine, _of_container()) if limit is not None]
    return min(limits) + (_kilobytes(Path("/proc/self/status"), "VmRSS") or 0) if limits else None


def _kilobytes(path: Path, name: str) -> int | None:
    lines = path.read_text().splitlines() if path.is_file() else []
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None


def _of_container(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        allowed, taken = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = (group / "memory.stat").read_text().split()
    except (OSError, ValueError):  # There is no limit.
        return None
    # Cached files are released on demand.
    counts = dict(zip(statistics[::2], map(int, statistics[1::2])))
    return allowed - taken + counts.get("inactive_file", 0) + counts.get("active_file", 0)


def memory_advice(
    settings: PretrainingSettings, config: AlbertConfig, phases: list[RecordsPhase], devices: Devices
) -> str:
    """Returns a line with the estimated memory of a step and, where it may not fit, the flags that help."""
    needs = [(phase.batch_size, step_need(config, phase.manifest, settings)) for phase in phases]

    def estimate(parts: int) -> float:
        return max(need.of(-(-rows // (parts * devices.processes))) for rows, need in needs)

    parts, rows, total = settings.gradient_accumulation_steps, phases[0].batch_size, free_memory()
    line = f"a step of {rows} rows takes about {estimate(parts) / GIB:.1f} GiB"
    if not total or tf.config.list_logical_devices("GPU"):
        return line
    line += f"; free: {total / GIB:.1f} GiB"
    if estimate(parts) <= total:
        return line
    divisors = [number for number in range(parts, rows + 1) if rows % number == 0]
    parts = next((number for number in divisors if estimate(number) <= _SHARE * total), rows)
    return f"{line}: it may not fit; --gradient_accumulation_steps={parts}, --walk=recompute or a smaller batch help"
