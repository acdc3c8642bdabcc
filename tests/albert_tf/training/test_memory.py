"""The estimate of a step's memory, and what a run advises where it does not fit."""

import dataclasses
import re

import pytest

from albert_tf import AlbertConfig
from albert_tf.training.loop import memory
from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.memory import GIB, memory_advice, step_need
from albert_tf.training.phases import RecordsPhase

pytestmark = pytest.mark.usefixtures("eagerly")

BASE = AlbertConfig.named("albert_base_v2")


def manifest(length, predictions):
    return {"max_seq_length": length, "max_predictions_per_seq": predictions}


def advice(settings, monkeypatch, gigabytes, **changes):
    monkeypatch.setattr(memory, "free_memory", lambda: gigabytes * GIB)
    phases = [RecordsPhase(0, 1, "", "", 4096, manifest(512, 77))]
    return memory_advice(dataclasses.replace(settings, **changes), BASE, phases, Devices())


# Peaks of the process in GiB, on a CPU under TensorFlow, by rows, length and policy.
PEAKS = {
    (8, 512, "float32"): 6.64, (12, 512, "float32"): 9.13, (32, 128, "float32"): 5.02, (64, 128, "float32"): 7.87,
    (8, 512, "mixed_bfloat16"): 5.04
}  # fmt: skip


def test_the_estimate_is_near_what_was_measured(tiny_settings):
    for (rows, length, policy), measured in PEAKS.items():
        settings = dataclasses.replace(tiny_settings, dtype_policy=policy, gradient_accumulation_steps=2)
        found = step_need(BASE, manifest(length, 77 if length == 512 else 20), settings).of(rows) / GIB
        assert 0.95 * measured < found < 1.25 * measured
    plain = AlbertConfig(hidden_size=256, intermediate_size=1024, num_attention_heads=4, max_position_embeddings=128)
    more, less = (
        step_need(one, manifest(64, 8), tiny_settings).row for one in (plain.replace(feed_forward="glu"), plain)
    )
    # MiB that each of 72 rows of 64 tokens takes more.
    assert (more - less) * 1024 / GIB == pytest.approx(4.9, rel=0.1)


def test_the_advised_parts_fit(tiny_settings, monkeypatch):
    line = advice(tiny_settings, monkeypatch, gigabytes=24)
    parts = int(re.search(r"--gradient_accumulation_steps=(\d+)", line)[1])
    need = step_need(BASE, manifest(512, 77), tiny_settings)
    assert 4096 % parts == 0 and need.of(4096 // parts) <= 0.8 * 24 * GIB
    assert line.startswith(f"a step of 4096 rows takes about {need.of(4096) / GIB:.1f} GiB; free: 24.0 GiB: it may not")
    fitting = advice(tiny_settings, monkeypatch, gigabytes=24, train_batch_size=4096, gradient_accumulation_steps=parts)
    assert fitting.endswith("; free: 24.0 GiB")


def test_a_containers_limit_counts_without_cached_files(tmp_path):
    for name, content in {
        "memory.max": 10 * GIB,
        "memory.current": 7 * GIB,
        "memory.stat": f"anon {4 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\n",
    }.items():
        (tmp_path / name).write_text(str(content))
    assert memory._of_container(tmp_path) == 6 * GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_container(tmp_path) is None


def test_what_is_free_is_between_nothing_and_everything():
    assert 0 < memory.free_memory() < 2**50
