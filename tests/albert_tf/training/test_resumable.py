"""Checkpoints: cut off at any write, damaged, left half-written; and signals that save first.

That all trainers go on from them is in test_resume.py.
"""

import collections
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import time
import types

import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats import load_keras
from albert_tf.training import pretraining
from albert_tf.training.loop import run_folder
from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.report import TrainingReport
from albert_tf.training.loop.training import StopSignals
from tests.albert_tf.training.trainers import at_step, copy, pretrain, send
from tests.refusals import refused
from tfrecords.base import files
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")


def steps_of(folder):
    return int(load_keras(folder / "last.keras", compile=True).optimizer.iterations)


@pytest.fixture(scope="module")
def settings(run_settings):
    return dataclasses.replace(run_settings("masked"), eval_data="")


@pytest.fixture(scope="module")
def finished(trained):
    """A run's folder, with checkpoints of steps 2 and 4."""
    return trained("masked")


DAMAGED = {
    "empty": lambda whole: b"",
    "first half": lambda whole: whole[: len(whole) // 2],
    "zeros for a page": lambda whole: whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :],
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(finished, tmp_path, kind, capsys):
    copy(finished, tmp_path)
    broken = DAMAGED[kind]((finished / "last.keras").read_bytes())
    (tmp_path / "last.keras").write_bytes(broken)
    assert int(run_folder.load_checkpoint(tmp_path).optimizer.iterations) == 2
    said = capsys.readouterr().err
    assert "last.keras' " in said and "going on from previous.keras" in said
    assert (tmp_path / "damaged.keras").read_bytes() == broken and not (tmp_path / "last.keras").exists()


def test_one_checkpoint_is_enough_and_two_damaged_ones_are_an_error(finished, tmp_path):
    assert run_folder.load_checkpoint(tmp_path) is None
    shutil.copy(finished / "last.keras", tmp_path)
    assert int(run_folder.load_checkpoint(tmp_path).optimizer.iterations) == 4
    for name in ("last.keras", "previous.keras"):
        (tmp_path / name).write_bytes(b"PK")
    with refused(r"last\.keras.*previous\.keras.*another --output_dir"):
        run_folder.load_checkpoint(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.keras", "previous.keras"]


@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_a_checkpoint_whose_optimizer_is_of_other_variables_is_an_error(finished, tmp_path):
    """Keras says so in a warning, and training would begin anew."""
    model = load_keras(finished / "last.keras", compile=True)
    model.optimizer.built = False
    model.optimizer.build(model.trainable_variables[1:])
    run_folder.save_checkpoint(model, tmp_path)
    with refused(r"last\.keras' has an optimizer of other variables .*another --output_dir"):
        run_folder.load_checkpoint(tmp_path)


def test_a_power_cut_at_any_moment_leaves_a_checkpoint(tmp_path, monkeypatch):
    """Killed before each system call that changes the folder, a save leaves the state of before or of after."""
    model = types.SimpleNamespace(save=lambda path: path.write_bytes(b"new"))
    calls, die_at = [], None

    class PowerCut(BaseException):
        pass

    def counted(function):
        def call(*arguments, **options):
            calls.append(function.__name__)
            if len(calls) - 1 == die_at:
                raise PowerCut
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(files.os, "replace", counted(os.replace))
    monkeypatch.setattr(files.os, "fsync", counted(os.fsync))
    for die_at in range(5):
        folder = tmp_path / str(die_at)
        folder.mkdir()
        (folder / "last.keras").write_bytes(b"old")
        calls.clear()
        if die_at < 4:
            with pytest.raises(PowerCut):
                run_folder.save_checkpoint(model, folder)
        else:
            run_folder.save_checkpoint(model, folder)
            # The order that a power cut asks for: bytes, then names, then the folder that has the names.
            assert calls == ["replace", "fsync", "replace", "fsync"]
            assert (folder / "previous.keras").read_bytes() == b"old"
        newest = next(folder / name for name in ("last.keras", "previous.keras") if (folder / name).is_file())
        assert newest.read_bytes() == (b"new" if die_at >= 3 else b"old")


def test_what_a_killed_save_left_is_swept_and_a_living_ones_is_not(finished, tmp_path):
    copy(finished, tmp_path / "run")
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [f".last.{dead.pid}.partial.keras", f".history.{dead.pid}.partial.csv", "tmpab12_xyz"]
    kept = [f".last.{os.getppid()}.partial.keras", "tmp-notes.txt", ".hidden.keras"]
    for name in (*left, *kept):
        (tmp_path / "run" / name).write_bytes(b"x")
    run_folder.load_checkpoint(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert not names & set(left) and names >= set(kept)


def test_a_full_disk_leaves_the_checkpoint_of_before(settings, trained, tmp_path):
    """A limit on the size of files stands for it: the same call fails in the same place."""
    copy(trained("masked", killed=True), tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            run_folder.save_checkpoint(load_keras(tmp_path / "last.keras", compile=True), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps_of(tmp_path) == 2
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


def test_a_signal_at_a_checkpoint_does_not_wait_for_the_evaluation(settings, tmp_path, monkeypatch):
    there = []
    at_step(monkeypatch, 2, send(signal.SIGINT))
    monkeypatch.setattr(pretraining.Pretraining, "evaluate", lambda self, phase: there.append(steps_of(tmp_path)) or {})
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings, tmp_path)
    assert there == [2]


def test_a_second_signal_ends_at_once_and_what_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signals.end()
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.asked == signal.SIGTERM
            with pytest.raises(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_folder_holds_one_run_at_a_time(settings, tmp_path):
    with files.locked(tmp_path), refused("another process is at work in"):
        pretrain(settings, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_never_made_a_step_keeps_nobody_out(settings, tmp_path, monkeypatch):
    def no_model(self):
        raise UserError("no such model")

    monkeypatch.setattr(pretraining.Pretraining, "new_model", no_model)
    for rate in (1e-3, 2e-3):
        with refused("no such model"):
            pretrain(settings, tmp_path, learning_rate=rate)


def test_the_time_left_has_to_be_enough_for_the_evaluation_too(settings):
    began = time.monotonic() - 3500
    training = pretraining.Pretraining(dataclasses.replace(settings, max_hours=1.0), Devices(), began)
    training.step, training.signals = 1, types.SimpleNamespace(asked=None)
    assert not training._is_over(50, evaluates=True)
    training._evaluation_seconds = 30
    assert not training._is_over(50, evaluates=False) and training._is_over(50, evaluates=True)


def board_steps(folder):
    """How often the files have each step's loss."""
    steps = collections.Counter()
    for path in sorted((folder / "tensorboard").rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            steps[event.step] += sum(value.tag == "loss" for value in event.summary.value)
    return {step: count for step, count in steps.items() if step}


@pytest.fixture(params=[0, 7], ids=["whole", "cut off"])
def killed(tmp_path, request):
    """A folder with the steps 10, 20 and 30, of which a kill may have cut off the last."""
    for board in ("train", "validation"):
        with tf.summary.create_file_writer(str(tmp_path / "tensorboard" / board)).as_default():
            for step in (10, 20, 30):
                tf.summary.scalar("loss", 1.0, step)
    for path in (tmp_path / "tensorboard").rglob("*tfevents*"):
        path.write_bytes(path.read_bytes()[: -request.param or None])
    (tmp_path / "history.csv").write_text("step,seconds,loss,val_loss\n10,1,1.0,1.0\n20,1,1.0,1.0\n")
    return tmp_path


def test_tensorboard_has_each_step_once_after_a_kill(killed):
    report = TrainingReport(run_folder.History(killed, 10), "training", 30, 10, boards=True)
    for step in (20, 30):
        report.row(step, {"loss": 1.0}, {"val_loss": 1.0}, 1.0)
    report.close()
    assert board_steps(killed) == {10: 2, 20: 2, 30: 2}
