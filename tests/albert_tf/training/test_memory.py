"""The batch of a step is cut into parts that fit: by the machine, by its container, or as told."""

import dataclasses
import json

import pytest

from albert_tf import AlbertConfig
from albert_tf.analysis.cost import parameters
from albert_tf.training import memory, pretraining, run_folder
from albert_tf.training.devices import Devices
from albert_tf.training.memory import GIB, fit_to_memory, step_need
from albert_tf.training.phases import RecordsPhase
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")

BASE = AlbertConfig.named("albert_base_v2")


def fitted(settings, tmp_path, batch=4096, length=512, replicas=1, **changes):
    manifest = {"max_seq_length": length, "max_predictions_per_seq": 77}
    phases = [RecordsPhase(0, 1, "", "", batch, manifest)]
    settings = dataclasses.replace(settings, train_batch_size=batch, **changes)
    return fit_to_memory(settings, BASE, phases, Devices(replicas=replicas), tmp_path / "run.json")


# Peaks of the process in GiB, on a CPU under TensorFlow, by rows, length and policy.
PEAKS = {
    (8, 512, "float32"): 6.64, (12, 512, "float32"): 9.13, (32, 128, "float32"): 5.02, (64, 128, "float32"): 7.87,
    (8, 512, "mixed_bfloat16"): 5.04,
}  # fmt: skip
# MiB that each of 72 rows of 64 tokens takes more.
MORE = {("feed_forward", "glu"): 4.9, ("hyper_connections", 4): 4.6, ("hyper_connections", 2): 2.1}


def test_the_estimate_is_near_what_was_measured(tiny_settings):
    for (rows, length, policy), measured in PEAKS.items():
        settings = dataclasses.replace(tiny_settings, dtype_policy=policy, gradient_accumulation_steps=2)
        found = step_need(BASE, length, 77 if length == 512 else 20, settings).of(rows) / GIB
        assert 0.95 * measured < found < 1.25 * measured
    plain = AlbertConfig(hidden_size=256, intermediate_size=1024, num_attention_heads=4, max_position_embeddings=128)
    for change, measured in MORE.items():
        more, less = (step_need(one, 64, 8, tiny_settings).row for one in (plain.replace(**dict([change])), plain))
        assert (more - less) * 1024 / GIB == pytest.approx(measured, rel=0.1)


def test_parts_of_a_step_take_one_more_copy_of_the_weights(tiny_settings):
    more, less = (
        step_need(BASE, 128, 20, dataclasses.replace(tiny_settings, gradient_accumulation_steps=parts)).fixed
        for parts in (2, 1)
    )
    assert more - less == pytest.approx(4 * parameters(BASE).total)


def test_the_papers_batch_is_cut_until_it_fits(tiny_settings, tmp_path):
    settings, line = fitted(tiny_settings, tmp_path, memory_gb=24.0)
    parts = settings.gradient_accumulation_steps
    need = step_need(BASE, 512, 77, settings)
    assert 4096 % parts == 0 and need.of(4096 // parts) <= 0.8 * 24 * GIB < need.of(2 * 4096 // parts)
    assert f"4096 rows takes about {need.of(4096 // parts) / GIB:.1f} GiB, in {parts} parts" in line
    assert "free: 24.0 GiB" in line
    assert fitted(tiny_settings, tmp_path, memory_gb=1e6)[0].gradient_accumulation_steps == 1


def test_a_number_that_was_told_or_begun_with_stays(tiny_settings, tmp_path):
    settings, line = fitted(tiny_settings, tmp_path, memory_gb=8.0, gradient_accumulation_steps=1)
    assert settings.gradient_accumulation_steps == 1 and "it may not fit" in line
    (tmp_path / "run.json").write_text('{"gradient_accumulation_steps": 32}')
    # One that never got as far as a checkpoint began with nothing.
    assert fitted(tiny_settings, tmp_path, memory_gb=1e6)[0].gradient_accumulation_steps == 1
    (tmp_path / "last.keras").touch()
    for batch in (4096, 96):
        assert fitted(tiny_settings, tmp_path, batch, memory_gb=8.0)[0].gradient_accumulation_steps == 32
    with pytest.raises(UserError, match="in 32 parts, and 2 devices cannot share 96 examples so; go on with as many"):
        fitted(tiny_settings, tmp_path, batch=96, replicas=2)
    for damaged in ('"x"', "-1", "[2]"):
        (tmp_path / "run.json").write_text(f'{{"gradient_accumulation_steps": {damaged}}}')
        with pytest.raises(UserError, match=r"run\.json' is damaged: its gradient_accumulation_steps is "):
            fitted(tiny_settings, tmp_path)


@pytest.mark.parametrize(
    ("gigabytes", "sizes", "manifest", "parts"),
    [
        (4.0, {96: 128, 36: 512}, {"max_predictions_per_seq": 20}, 12),
        # Streams that run backwards are shared by themselves.
        (2.5, {48: 512}, {"max_predictions_per_seq": 85, "bi_data": True}, 24),
    ],
)
def test_parts_divide_the_batches_of_both_phases_and_directions(
    tiny_settings, tmp_path, gigabytes, sizes, manifest, parts
):
    phases = [RecordsPhase(0, 1, "", "", rows, manifest | {"max_seq_length": length}) for rows, length in sizes.items()]
    settings = dataclasses.replace(tiny_settings, memory_gb=gigabytes, train_batch_size=min(sizes))
    found = fit_to_memory(settings, BASE, phases, Devices(), tmp_path / "run.json")[0]
    assert found.gradient_accumulation_steps == parts


@pytest.mark.parametrize(
    ("group", "own", "limit", "used", "unlimited"),
    [
        ("memory/one", "4:memory:/one\n1:cpu:/\n", "memory.limit_in_bytes", "memory.usage_in_bytes", 2**63 - 4096),
        ("one", "0::/one\n", "memory.max", "memory.current", "max"),
    ],
)  # fmt: skip
def test_a_containers_limit_counts_without_cached_files(tmp_path, group, own, limit, used, unlimited):
    (tmp_path / "cgroup").write_text(own)
    (group := tmp_path / group).mkdir(parents=True)
    (group / limit).write_text(f"{10 * GIB}\n")
    (group / used).write_text(f"{7 * GIB}\n")
    (group / "memory.stat").write_text(f"anon {4 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\n")
    assert memory._of_containers(tmp_path, tmp_path / "cgroup") == [6 * GIB]
    (group / limit).write_text(f"{unlimited}\n")
    assert memory._of_containers(tmp_path, tmp_path / "cgroup") == []


def test_what_is_free_is_between_nothing_and_everything():
    assert 0 < memory.free_memory() < 2**50


def test_a_run_in_parts_by_itself_goes_on_with_as_many(tiny_settings, tmp_path, monkeypatch):
    def begun(fitting, **changes):
        monkeypatch.setattr(memory, "_common_divisors", lambda numbers: [fitting])
        settings = dataclasses.replace(tiny_settings, output_dir=str(tmp_path), **changes)
        return pretraining.Pretraining(settings, Devices(), 0.0)

    def claim(run):
        run_folder.claim(run.folder, run.settings, run.free, run.facts())

    first = begun(2)
    assert "in 2 parts one after the other, to fit" in first.memory
    claim(first)
    (tmp_path / "last.keras").touch()
    claim(begun(4))
    assert json.loads((tmp_path / "run.json").read_text())["gradient_accumulation_steps"] == 2
    with pytest.raises(UserError, match=r"gradient_accumulation_steps=2 \(now 4\)"):
        claim(begun(4, gradient_accumulation_steps=4))
