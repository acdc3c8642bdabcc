"""What users have on their disks from earlier versions loads and answers as before; see stored/make.py."""

import importlib.util
import json
import shutil
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tfrecords.base import files

STORED = Path(__file__).parent / "stored"


def _script(name: str):
    spec = importlib.util.spec_from_file_location(f"stored_{name}", STORED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make, extensions = _script("make"), _script("extensions")
HEADS = list(make.heads())
# The others are slow: a graph of each takes seconds to build. Of the fine-tuning curves that of early exits stays: its
# last head is the plain one.
# SHA-256 of the training records of format version 3. The stored ones are of version 2.
TRAINING_RECORDS = {
    "dynamic": "bcc4968a08705a5fe5b09c49cf3d5562d21972a181d85147514bf8edbd258afc",
    "static": "f6277520cc1496d6e44d8a903fc4ac49bcc2560dbbabe13ea859e99c4dcff4fc",
}
QUICK = ("classifier", "dynamic", "early exit")


def _some_slow(names) -> list:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def _of(answers: str, head: str) -> dict[str, np.ndarray]:
    prefix = head.replace(" ", "_") + "/"
    with np.load(STORED / answers) as found:
        return {key.removeprefix(prefix): found[key] for key in found if key.startswith(prefix)}


def _assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    # Exports may give more than they did.
    assert set(found) >= set(expected)
    for name, value in expected.items():
        if value.dtype.kind in "SiU":
            np.testing.assert_array_equal(found[name].astype(value.dtype), value, name)
        else:
            # What fills up a row of scores was -1e30 and is -1e4 (serving.exportable.base.NO_ANSWER).
            one, other = (np.maximum(scores, -1e4) for scores in (found[name], value))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("head", HEADS)
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
    assert files.read_json(STORED / masking / "manifest.json")["format_version"] == 2
    before, now = STORED / masking, tmp_path / "data"
    held_out, training = "eval-00000-of-00001.tfrecord", "train-00000-of-00001.tfrecord"
    assert {path.name for path in now.glob("*.tfrecord*")} == {held_out, training}
    assert (now / held_out).read_bytes() == (before / held_out).read_bytes()
    assert files.sha256(now / training) == TRAINING_RECORDS[masking]
    rows_before, rows_now = (
        {record.numpy() for record in tf.data.TFRecordDataset(str(folder / training))} for folder in (before, now)
    )
    # Version 3 leaves the file's last line end out of its last document's hash: masks and pairs of that are others.
    assert len(rows_now - rows_before) == len(rows_before - rows_now) == 1


def _assert_curve(run: Path, name: str) -> None:
    expected, found = json.loads((STORED / "curves.json").read_text())[name], make.history(run)
    assert len(found) == len(expected)
    if name == "pretraining: static, in parts":
        # Since then every part divides by the whole batch's counts, so that updates are those of one part
        # (training/test_accumulation.py): as before is what the first step saw.
        expected, found = ([{"loss": rows[0]["loss"], "step": rows[0]["step"]}] for rows in (expected, found))
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


@pytest.fixture(scope="module")
def tiny_files(tmp_path_factory) -> Path:
    """The files of `stored/extensions.py`: every extension, XLNet and RoBERTa."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED / "extensions.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "extensions"


@pytest.fixture(scope="module")
def tiny_answers() -> dict[str, np.ndarray]:
    with np.load(STORED / "extensions.npz") as file:
        return dict(file)


def _assert_same(found: dict[str, np.ndarray], name: str, answers: dict[str, np.ndarray]) -> None:
    """Equal but for the last bits, in which kinds of CPU differ."""
    prefix = f"{name}/"
    expected = {key.removeprefix(prefix): value for key, value in answers.items() if key.startswith(prefix)}
    assert sorted(found) == sorted(expected) and expected
    for key, value in expected.items():
        assert found[key].dtype == value.dtype and found[key].shape == value.shape, key
        if value.dtype.kind == "S":
            np.testing.assert_array_equal(found[key], value)
            continue
        # On the kind of CPU that wrote them they are equal; without oneDNN's kernels 1.7e-6 off at most.
        np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=5e-6, err_msg=f"{name}/{key}")


TINY = (*extensions.ENCODERS, "electra", "xlnet", "xlnet_classifier", "roberta", "roberta_classifier")


@pytest.mark.parametrize("name", TINY)
def test_file_of_an_extension_answers_as_before(name, tiny_files, tiny_answers):
    model = keras.saving.load_model(tiny_files / f"{name}.keras")
    _assert_same(extensions.answers_of(name, model), name, tiny_answers)


@pytest.mark.parametrize("name", extensions.FOLDERS)
def test_huggingface_folder_answers_as_before(name, tiny_files, tiny_answers):
    from albert_tf.checkpoints import load_huggingface

    model = load_huggingface(tiny_files / f"{name}_huggingface")
    _assert_same(extensions.answers_of(name, model), f"{name}_huggingface", tiny_answers)


# A graph of six extensions takes some seconds to load.
_EXPORTED = [
    pytest.param(name, marks=pytest.mark.slow if name == "six_at_once" else ()) for name in extensions.EXPORTED
]


@pytest.mark.parametrize("name", _EXPORTED)
def test_export_of_an_extension_answers_as_before(name, tiny_files, tiny_answers):
    found = extensions.signature_answers(tiny_files / f"{name}_export")
    _assert_same(found, f"{name}_export", tiny_answers)


def test_every_extension_is_stored():
    """A field that no stored file sets could be read wrongly by a later version; the others change no layout."""
    stored = set().union(*extensions.ENCODERS.values(), extensions.XLNET, extensions.ROBERTA, extensions.SIZES)
    others = {"inner_group_num", "always_project", "initializer_range", "gate_init", "rotary_theta"}
    others |= {"depth_lora_target", "hidden_dropout_prob", "attention_probs_dropout_prob"}
    others |= {"halting_threshold", "ponder_cost", "equilibrium_phantom_steps", "equilibrium_damping"}
    assert set(albert_tf.AlbertConfig.__dataclass_fields__) - stored == others
