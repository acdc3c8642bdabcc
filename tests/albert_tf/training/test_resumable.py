"""Checkpoints: cut off at any write, damaged, left half-written; and signals that save first."""

import csv
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import time
import types

import numpy as np
import pytest

from albert_tf import AlbertConfig
from albert_tf.checkpoints.formats import load_keras
from albert_tf.training import finetuning, loop, pretraining, run_folder
from albert_tf.training.devices import Devices
from tests.albert_tf.training.classes import write_classes
from tfrecords.base import files
from tfrecords.base.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")


def steps_of(folder):
    return int(load_keras(folder / "last.keras", compile=True).optimizer.iterations)


def assert_same_weights(one, other):
    models = [load_keras(folder / "last.keras", compile=True) for folder in (one, other)]
    for first, second in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(first, second)


def figures(folder):
    rows = csv.DictReader((folder / "history.csv").read_text().splitlines())
    return [(row["step"], row["loss"], row["masked_lm_accuracy"]) for row in rows]


@pytest.fixture(scope="module")
def settings(tiny_settings, tmp_path_factory):
    """A checkpoint every second of five steps, a row every third; each step draws its depth."""
    config = tmp_path_factory.mktemp("random depth") / "config.json"
    AlbertConfig.from_json(tiny_settings.config).replace(num_hidden_layers=4, random_depth_min=1).to_json(config)
    return dataclasses.replace(tiny_settings, config=str(config), eval_data="", num_train_steps=5, log_steps=3)


@pytest.fixture(scope="module")
def straight(settings, tmp_path_factory):
    return pretraining.pretrain(dataclasses.replace(settings, output_dir=str(tmp_path_factory.mktemp("straight"))))


@pytest.fixture(scope="module")
def stopped(settings, tmp_path_factory):
    """A run with checkpoints of steps 2 and 4."""
    settings = dataclasses.replace(settings, output_dir=str(tmp_path_factory.mktemp("stopped")))
    return settings, pretraining.pretrain(settings, stop_step=4)


def damage(kind, whole):
    return {
        "empty": b"", "first half": whole[: len(whole) // 2], "all but the end": whole[:-1],
        "zeros for a page": whole[: len(whole) // 2] + bytes(4096) + whole[len(whole) // 2 + 4096 :],
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["empty", pytest.param("first half", marks=pytest.mark.slow), "all but the end", "zeros for a page"]
)
@pytest.mark.few(2)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(stopped, straight, tmp_path, kind, capsys):
    settings, folder = stopped
    shutil.copytree(folder, tmp_path / "run")
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "run"))
    whole = (folder / "last.keras").read_bytes()
    (tmp_path / "run" / "last.keras").write_bytes(damage(kind, whole))
    pretraining.pretrain(settings)
    said = capsys.readouterr()
    assert "last.keras' as a Keras model" in said.err and "going on from previous.keras" in said.err
    assert "Resuming at step 2 of 5" in said.out
    assert (tmp_path / "run" / "damaged.keras").read_bytes() == damage(kind, whole)
    assert_same_weights(tmp_path / "run", straight)


def test_two_damaged_ones_are_an_error(tmp_path):
    for name in ("last.keras", "previous.keras"):
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(UserError, match=r"last\.keras.*previous\.keras.*another --output_dir"):
        run_folder.load_checkpoint(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.keras", "previous.keras"]


@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_a_checkpoint_whose_optimizer_is_of_other_variables_is_an_error(stopped, tmp_path):
    """Keras says so in a warning, and training would begin anew."""
    model = load_keras(stopped[1] / "last.keras", compile=True)
    model.optimizer.built = False
    model.optimizer.build(model.trainable_variables[1:])
    run_folder.save_checkpoint(model, tmp_path)
    with pytest.raises(UserError, match=r"last\.keras' has an optimizer of other variables .*another --output_dir"):
        run_folder.load_checkpoint(tmp_path)


def test_a_power_cut_at_any_moment_leaves_a_checkpoint(stopped, tmp_path, monkeypatch):
    """Killed before each system call that changes the folder, a save leaves the state of before or of after."""
    model = load_keras(stopped[1] / "last.keras", compile=True)
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
        shutil.copytree(stopped[1], folder)
        calls.clear()
        model.optimizer.iterations.assign(77)
        if die_at < 4:
            with pytest.raises(PowerCut):
                run_folder.save_checkpoint(model, folder)
        else:
            run_folder.save_checkpoint(model, folder)
            # The order that a power cut asks for: bytes, then names, then the folder that has the names.
            assert calls == ["replace", "fsync", "replace", "fsync"]
        calls.clear()
        assert int(run_folder.load_checkpoint(folder).optimizer.iterations) == (77 if die_at >= 3 else 4)


def test_what_a_killed_save_left_is_swept_and_a_living_ones_is_not(stopped, tmp_path):
    shutil.copytree(stopped[1], tmp_path / "run")
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [f".last.{dead.pid}.partial.keras", f".history.{dead.pid}.partial.csv", "tmpab12_xyz"]
    kept = [f".last.{os.getppid()}.partial.keras", "tmp-notes.txt", ".hidden.keras"]
    for name in (*left, *kept):
        (tmp_path / "run" / name).write_bytes(b"x")
    run_folder.load_checkpoint(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert not names & set(left) and names >= set(kept)


def test_a_folder_of_before_with_one_checkpoint_goes_on(stopped, straight, tmp_path):
    settings, folder = stopped
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "previous.keras").unlink()
    pretraining.pretrain(dataclasses.replace(settings, output_dir=str(tmp_path / "run")))
    assert_same_weights(tmp_path / "run", straight)


def send(monkeypatch, owner, name, number, call):
    """Sends this process a signal within call number `call` of a method."""
    function, count = getattr(owner, name), iter(range(1, 100))

    def called(*arguments, **options):
        if next(count) == call:
            os.kill(os.getpid(), number)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize(
    ("number", "ends"),
    [(signal.SIGTERM, SystemExit), pytest.param(signal.SIGINT, KeyboardInterrupt, marks=pytest.mark.slow)],
)
def test_signals_save_first_and_change_nothing(settings, straight, tmp_path, monkeypatch, number, ends):
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "run"))
    with monkeypatch.context() as patch:
        send(patch, loop.Report, "step", number, call=3 if number == signal.SIGTERM else 1)
        with pytest.raises(ends) as ended:
            pretraining.pretrain(settings)
    if ends is SystemExit:
        assert ended.value.code == 143
    assert steps_of(tmp_path / "run") == (3 if number == signal.SIGTERM else 1)
    pretraining.pretrain(settings)
    assert_same_weights(tmp_path / "run", straight)
    assert figures(tmp_path / "run") == figures(straight)


@pytest.mark.slow
def test_fine_tuning_stops_between_checkpoints_and_goes_on(tiny_run, tmp_path, monkeypatch):
    from albert_tf.tasks.settings import FinetuningSettings

    write_classes(tmp_path)
    settings = FinetuningSettings(
        task="classification", data_dir=str(tmp_path), init_from=str(tiny_run), output_dir=str(tmp_path / "straight"),
        learning_rate=1e-3, train_batch_size=8, num_train_steps=7, save_checkpoints_steps=3, albert_dropout=0.1,
    )  # fmt: skip
    finetuning.finetune(settings)
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "run"))
    for call, step in ((2, 2), (3, 5)):
        with monkeypatch.context() as patch:
            send(patch, loop.Report, "step", signal.SIGTERM, call)
            with pytest.raises(SystemExit):
                finetuning.finetune(settings)
        assert steps_of(tmp_path / "run") == step
    finetuning.finetune(settings)
    assert_same_weights(tmp_path / "run", tmp_path / "straight")


def test_a_full_disk_leaves_the_checkpoint_of_before(stopped, tmp_path):
    """A limit on the size of files stands for it: the same call fails in the same place."""
    settings, folder = stopped
    shutil.copytree(folder, tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            pretraining.pretrain(dataclasses.replace(settings, output_dir=str(tmp_path / "run")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert steps_of(tmp_path / "run") == 4
    assert not [path for path in (tmp_path / "run").iterdir() if "partial" in path.name]


def test_an_evaluation_that_fails_costs_no_update(settings, straight, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings, output_dir=str(tmp_path))

    def fails(self, phase):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(pretraining.Pretraining, "evaluate", fails)
        pretraining.pretrain(settings)
    assert steps_of(tmp_path) == 2
    pretraining.pretrain(settings)
    assert_same_weights(straight, tmp_path)


def test_a_signal_at_a_checkpoint_does_not_wait_for_the_evaluation(settings, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings, output_dir=str(tmp_path))
    step, count, there = loop.Report.step, iter(range(1, 100)), []

    def signalled(self, *arguments):
        step(self, *arguments)
        if next(count) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Report, "step", signalled)
    monkeypatch.setattr(pretraining.Pretraining, "evaluate", lambda self, phase: there.append(steps_of(tmp_path)) or {})
    with pytest.raises(KeyboardInterrupt):
        pretraining.pretrain(settings)
    assert there == [2]


def test_a_folder_holds_one_run_at_a_time(settings, tmp_path):
    with files.locked(tmp_path), pytest.raises(UserError, match="another process is at work in"):
        pretraining.pretrain(dataclasses.replace(settings, output_dir=str(tmp_path)))
    assert not list(tmp_path.iterdir())


def test_what_never_made_a_step_keeps_nobody_out(settings, tmp_path, monkeypatch):
    def refused(self):
        raise UserError("no such model")

    monkeypatch.setattr(pretraining.Pretraining, "new_model", refused)
    for rate in (1e-3, 2e-3):
        with pytest.raises(UserError, match="no such model"):
            pretraining.pretrain(dataclasses.replace(settings, output_dir=str(tmp_path), learning_rate=rate))


def test_the_time_left_has_to_be_enough_for_the_evaluation_too(settings):
    began = time.monotonic() - 3500
    training = pretraining.Pretraining(dataclasses.replace(settings, max_hours=1.0), Devices(), began)
    training.step, training.signals = 1, types.SimpleNamespace(asked=None)
    assert not training._is_over(50, evaluates=True)
    training._evaluation_seconds = 30
    assert not training._is_over(50, evaluates=False) and training._is_over(50, evaluates=True)
