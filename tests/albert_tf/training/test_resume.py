"""The contract of all trainers: a run that was cut off and begun again equals the one that was not, to the bit."""

import dataclasses
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
KILLS = {"kill -9": 2, "SIGTERM": 3, "Ctrl-C": 3, "failed evaluation": 2, "time budget": 3}
# Each kind of loop and each way; the others are slow. Distillation and pairs are fine-tunings; Ctrl-C is SIGTERM but
# for the status; how records of permutations go on is test_permutation_reader.py's.
# From a damaged checkpoint a run goes on as after a kill -9 (test_resumable.py); a run that its budget stops is
# evaluated there, and this one has no data.
DEFAULT = {
    ("masked", "failed evaluation"), ("two phases", "time budget"), ("distillation", "SIGTERM"),
    ("compression", "kill -9")
}  # fmt: skip
CASES = [
    pytest.param(name, kill, marks=[pytest.mark.slow] * ((name, kill) not in DEFAULT), id=f"{name}-{kill}")
    for name in KINDS
    for kill in KILLS
    if kill != "time budget" or name == "two phases"
]
# Figures of the machine.
MEASURED = {"seconds", "tokens_per_second", "input_wait", "memory_gb", "device_memory_gb"}


def stored(path):
    """All that a .keras file holds: weights and, of a checkpoint, optimizer, seeds, sums of figures and memory."""
    found = {}
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    return found


def rows_of(folder, held_out_alone, without):
    names = [name for name in history(folder)[0] if name not in MEASURED]
    names = [name for name in names if name.startswith(("step", "dev_", "val_")) or not held_out_alone]
    return [{name: row[name] for name in names} for row in history(folder) if row["step"] != without]


def assert_same_run(one, other, kill, held_out_alone):
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
                # What answers draws nothing.
                if name.name != "model.keras" or not key.endswith("seed_generator_state"):
                    np.testing.assert_array_equal(found[key], value, err_msg=f"{name}: {key}")
        elif name.name == "history.csv":
            rows = [rows_of(folder / name.parent, held_out_alone, "2" if failed else "") for folder in (one, other)]
            assert rows[0] == rows[1] != []
        elif name.parent.name == "predictions" or name.name == "task.json":
            assert (one / name).read_bytes() == (other / name).read_bytes()


def cut_off(name, kill, settings, trained, folder, patch, capsys):
    """Leaves a run in the folder that ended in this way."""
    kind = KINDS[name]
    if kill in ("kill -9", "time budget"):
        copy(trained(name, killed=True), folder)
    if kill == "time budget":
        train(name, dataclasses.replace(settings, max_hours=1e-9), folder)
        assert "stopped at step 3 of 4; the same command goes on from there" in capsys.readouterr().out
        assert (folder / "model.keras").is_file()
    elif kill == "failed evaluation":
        evaluate = kind.evaluates.evaluate

        def fails(self, phase):
            if self.step == 2:
                raise RuntimeError("out of memory")
            return evaluate(self, phase)

        patch.setattr(kind.evaluates, "evaluate", fails)
        with pytest.raises(RuntimeError):
            train(name, settings, folder)
    elif kill != "kill -9":
        number, ends = (signal.SIGTERM, SystemExit) if kill == "SIGTERM" else (signal.SIGINT, KeyboardInterrupt)
        at_step(patch, 3, send(number))
        with pytest.raises(ends) as ended:
            train(name, settings, folder)
        assert ends is KeyboardInterrupt or ended.value.code == 143


# The first of a trainer makes its uninterrupted run as well: of a compression also what it begins from.
@pytest.mark.parametrize("name, kill", CASES)
def test_cut_off_and_begun_again_equals_uninterrupted(name, kill, run_settings, trained, tmp_path, monkeypatch, capsys):
    settings, folder = run_settings(name), tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_off(name, kill, settings, trained, folder, patch, capsys)
    capsys.readouterr()
    train(name, settings, folder)
    assert f"Resuming at step {KILLS[kill]} of 4" in capsys.readouterr().out
    # What a signal ends between two rows, a pre-training alone adds up further.
    is_cut = kill in ("SIGTERM", "Ctrl-C") and KINDS[name].evaluates is not Pretraining
    assert_same_run(trained(name), folder, kill, is_cut)
