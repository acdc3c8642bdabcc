"""The contract of all trainers: a run that was cut off and begun again equals the one that was not, to the bit."""

import contextlib
import io
import signal
import zipfile

import h5py
import numpy as np
import pytest

from albert_tf.training.pretraining import Pretraining
from tests.albert_tf.training.trainers import KINDS, at_step, copy, history, send, train

pytestmark = pytest.mark.usefixtures("eagerly")

# How a run ends before its time, and the step that it goes on from: all were cut off after the third.
KILLS = {"kill -9": 2, "SIGTERM": 3, "Ctrl-C": 3, "damaged": 2, "failed evaluation": 2}
# Each trainer, each way, and a signal between two rows and at one; the others are slow. A distillation is a
# fine-tuning, and from a damaged checkpoint a run goes on as after a kill -9 (test_resumable.py).
DEFAULT = {
    ("masked", "SIGTERM"), ("two phases", "Ctrl-C"), ("permutation", "kill -9"), ("packed", "failed evaluation"),
    ("distillation", "SIGTERM"), ("pairs", "kill -9"), ("compression, text", "kill -9"),
    ("compression, task", "kill -9"),
}  # fmt: skip
CASES = [
    pytest.param(name, kill, marks=[pytest.mark.slow] * ((name, kill) not in DEFAULT), id=f"{name}-{kill}")
    for name in KINDS
    for kill in KILLS
]
# Figures of the machine.
MEASURED = {"seconds", "tokens_per_second", "input_wait", "mfu", "memory_gb", "device_memory_gb"}


def stored(path):
    """All that a .keras file holds: weights and, of a checkpoint, optimizer, seeds, sums of figures and memory."""
    found = {}
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    return found


def rows_of(folder, held_out_alone):
    rows = history(folder)
    names = [name for name in rows[0] if name not in MEASURED]
    names = [name for name in names if name.startswith(("step", "dev_", "val_")) or not held_out_alone]
    return [{name: row[name] for name in names} for row in rows]


def assert_same_run(one, other, kill, held_out_alone=False):
    """The same checkpoints, models, history and answers, wherever in the folders they lie."""
    # A row is written, and a model chosen, after an evaluation: of one that fails there is neither.
    failed = kill == "failed evaluation"
    names = [path.relative_to(one) for path in sorted(one.rglob("*")) if path.is_file()]
    names = [name for name in names if not failed or name.name in ("last.keras", "history.csv")]
    assert sum(name.name == "last.keras" for name in names) == sum(name.name == "history.csv" for name in names) > 0
    for name in names:
        if name.suffix == ".keras" and name.name != "previous.keras":
            expected, found = stored(one / name), stored(other / name)
            assert expected.keys() == found.keys() and len(found) > 10
            for key, value in expected.items():
                if name.name == "model.keras" and key.endswith("seed_generator_state"):
                    continue  # What answers draws nothing.
                np.testing.assert_array_equal(found[key], value, err_msg=f"{name}: {key}")
        elif name.name == "history.csv":
            expected, found = (rows_of(folder / name.parent, held_out_alone) for folder in (one, other))
            there = [[row for row in rows if not failed or row["step"] != "2"] for rows in (expected, found)]
            assert there[0] == there[1] and there[0]
        elif name.parent.name == "predictions" or name.name == "task.json":
            assert (one / name).read_bytes() == (other / name).read_bytes()


def cut_off(name, kill, settings, trained, folder, monkeypatch):
    """Leaves a run in the folder that ended in this way."""
    kind = KINDS[name]
    if kill in ("kill -9", "damaged"):
        copy(trained(name, killed=kill == "kill -9"), folder)
    if kill == "damaged":
        checkpoint = folder / kind.phase / "last.keras"
        whole = checkpoint.read_bytes()
        half = len(whole) // 2
        checkpoint.write_bytes(whole[:half] + bytes(4096) + whole[half + 4096 :])
    with monkeypatch.context() as patch:
        if kill in ("SIGTERM", "Ctrl-C"):
            number, ends = (signal.SIGTERM, SystemExit) if kill == "SIGTERM" else (signal.SIGINT, KeyboardInterrupt)
            at_step(patch, 3, send(number), kind.phase)
            with pytest.raises(ends) as ended:
                train(name, settings, folder)
            assert ends is KeyboardInterrupt or ended.value.code == 143
        elif kill == "failed evaluation":
            evaluate = kind.evaluates.evaluate

            def fails(self, phase):
                if self.step == 2:
                    raise RuntimeError("out of memory")
                return evaluate(self, phase)

            patch.setattr(kind.evaluates, "evaluate", fails)
            with pytest.raises(RuntimeError):
                train(name, settings, folder)


class Ended(Exception):
    pass


def end(folder):
    raise Ended


# The first of a trainer makes its uninterrupted run as well: of a compression two phases and what they begin from, 8 s.
@pytest.mark.parametrize(("name", "kill"), CASES)
def test_cut_off_and_begun_again_equals_uninterrupted(name, kill, run_settings, trained, tmp_path, monkeypatch, capsys):
    settings, folder = run_settings(name), tmp_path / "run"
    cut_off(name, kill, settings, trained, folder, monkeypatch)
    capsys.readouterr()
    of_phase = "text_phase" if KINDS[name].phase == "text_phase" else ""
    with monkeypatch.context() as patch, contextlib.suppress(Ended):
        if of_phase:  # What follows begins from this phase's model alone, and is the other phase's case.
            at_step(patch, 1, end, "task_phase")
        train(name, settings, folder)
    said = capsys.readouterr()
    assert f"Resuming at step {KILLS[kill]} of 4" in said.out
    if kill == "damaged":
        assert "last.keras' as a Keras model" in said.err and "going on from previous.keras" in said.err
    # What a signal ends between two rows, a pre-training alone adds up further.
    is_cut = kill in ("SIGTERM", "Ctrl-C") and KINDS[name].evaluates is not Pretraining
    assert_same_run(trained(name) / of_phase, folder / of_phase, kill, held_out_alone=is_cut)
