"""What users have on their disks from earlier versions loads and answers as before; see stored/make.py."""

import importlib.util
import json
import shutil
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest

import albert_tf  # noqa: F401  its classes are registered with Keras

STORED = Path(__file__).parent / "stored"
_spec = importlib.util.spec_from_file_location("stored_make", STORED / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)
HEADS = list(make.heads())
# The others run by the name `slow`: a graph of each head takes ten seconds to build.
QUICK = ("classifier", "dynamic", "plain", "early exit")


def _some_slow(names) -> list:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module", params=HEADS)
def head(request) -> str:
    return request.param


def _of(answers: str, head: str) -> dict[str, np.ndarray]:
    prefix = head.replace(" ", "_") + "/"
    with np.load(STORED / answers) as found:
        return {key.removeprefix(prefix): found[key] for key in found if key.startswith(prefix)}


def _assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        if value.dtype.kind in "SiU":
            np.testing.assert_array_equal(found[name].astype(value.dtype), value, name)
        else:
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.few(3)
def test_model_file_answers_as_before(head):
    model = keras.saving.load_model(STORED / f"{head.replace(' ', '_')}.keras")
    _assert_equal(make.answers_of(model, head), _of("answers.npz", head))


@pytest.mark.parametrize("head", _some_slow(HEADS))
def test_export_of_before_answers_as_before(head, tmp_path):
    with tarfile.open(STORED / f"{head.replace(' ', '_')}_export.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    _assert_equal(make.call_saved_model(tmp_path, **make.request_of(head)), _of("served.npz", head))


@pytest.mark.parametrize("head", _some_slow(HEADS))
def test_export_of_today_answers_as_before(head, tmp_path):
    from serving.export import ExportSettings, export

    shutil.copy(STORED / f"{head.replace(' ', '_')}.keras", tmp_path / "model.keras")
    shutil.copy(STORED / "vocab.txt", tmp_path)
    if head in make.TASKS:
        (tmp_path / "task.json").write_text(json.dumps(make.TASKS[head]))
    version = export(ExportSettings(str(tmp_path), str(tmp_path / "out"), inputs="text", warm_up_lengths=""))
    _assert_equal(make.call_saved_model(version, **make.request_of(head)), _of("served.npz", head))


@pytest.mark.parametrize("masking", _some_slow(["dynamic", "static"]))
def test_records_of_today_are_those_of_before(masking, tmp_path, run_module):
    built = run_module(*make.build_arguments(STORED, tmp_path / "data", masking))
    assert built.returncode == 0, built.stderr
    expected = sorted((STORED / masking).glob("*.tfrecord*"))
    assert expected
    for path in expected:
        assert (tmp_path / "data" / path.name).read_bytes() == path.read_bytes(), path.name


def _assert_curve(run: Path, name: str) -> None:
    expected, found = json.loads((STORED / "curves.json").read_text())[name], make.history(run)
    assert len(found) == len(expected)
    for before, now in zip(expected, found):
        for key, value in before.items():
            if value:
                # Another machine's sums differ in their last bits, and history.csv keeps six digits.
                assert float(now[key]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), (key, before["step"])
            else:
                assert not now[key], key


@pytest.mark.parametrize("name", _some_slow(make.PRETRAININGS))
def test_pretraining_curve_is_that_of_before(name, tmp_path):
    from albert_tf.training.pretraining import pretrain

    run = pretrain(make.pretraining_settings(STORED, tmp_path / "run", **make.PRETRAININGS[name]))
    _assert_curve(run, f"pretraining: {name}")


@pytest.mark.parametrize("name", _some_slow(make.FINETUNINGS))
def test_finetuning_curve_is_that_of_before(name, tmp_path):
    from albert_tf.training.finetuning import finetune

    run = finetune(make.finetuning_settings(STORED, tmp_path / "run", **make.FINETUNINGS[name]))
    _assert_curve(run, f"finetuning: {name}")
