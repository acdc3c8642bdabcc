"""What users have on their disks from earlier versions loads and answers as before; see stored/make.py."""

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import load_huggingface
from albert_tf.config.registry import KEYS
from albert_tf.training.finetuning import finetune
from albert_tf.training.pretraining import pretrain
from serving.export import ExportSettings, export
from tests.refusals import refused
from tests.slow_groups import some_slow
from tests.stored import extensions, make
from tfrecords.base import files
from tfrecords.reading.manifest import read_manifest
from tfrecords.tokenizers.loading import load_tokenizer

pytestmark = pytest.mark.usefixtures("eagerly")
STORED = Path(__file__).parent / "stored"
HEADS = make.HEADS
TINY = (*extensions.ENCODERS, "xlnet", "xlnet_classifier", "roberta", "roberta_classifier")
TINY += ("modernbert", "modernbert_words")
# The others are slow: a graph of each takes seconds to build or to load. Of the fine-tuning curves that of early exits
# stays: its last head is the plain one.
QUICK = ("classifier", "dynamic", "early exit", "xlnet_classifier", "roberta_classifier")


def _stored(name):
    return name.replace(" ", "_")


@pytest.fixture(scope="module")
def tiny_files(tmp_path_factory):
    """The files of `stored/extensions.py`: every extension, XLNet and RoBERTa."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED / "extensions.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "extensions"


def _assert_as_before(found, answers, name):
    """Equal but for the last bits, in which kinds of CPU differ: without oneDNN's kernels by 1.7e-6 at most."""
    prefix, tiny = f"{_stored(name)}/", answers == "extensions.npz"
    with np.load(STORED / answers) as file:
        expected = {key.removeprefix(prefix): file[key] for key in file if key.startswith(prefix)}
    # Exports of heads may give more than they did.
    assert expected and (found.keys() == expected.keys() if tiny else found.keys() >= expected.keys())
    for key, value in expected.items():
        assert found[key].shape == value.shape and (not tiny or found[key].dtype == value.dtype), key
        if value.dtype.kind in "SiU":
            np.testing.assert_array_equal(found[key].astype(value.dtype), value, key)
            continue
        # What fills up a row of scores was -1e30 and is -1e4 (serving.exportable.base.NO_ANSWER).
        one, other = (np.maximum(scores, -1e4) for scores in (found[key], value))
        tolerance = {"rtol": 1e-6, "atol": 5e-6} if tiny else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(one, other, **tolerance, err_msg=f"{name}/{key}")


@pytest.mark.parametrize("name", [*HEADS, *TINY])
def test_model_file_answers_as_before(name, tiny_files):
    script, folder, answers = (extensions, tiny_files, "extensions") if name in TINY else (make, STORED, "answers")
    model = keras.saving.load_model(folder / f"{_stored(name)}.keras")
    _assert_as_before(script.answers_of(model, name), f"{answers}.npz", name)


@pytest.mark.parametrize("name", extensions.FOLDERS)
def test_huggingface_folder_answers_as_before(name, tiny_files):
    model = load_huggingface(tiny_files / f"{name}_huggingface")
    _assert_as_before(extensions.answers_of(model, name), "extensions.npz", f"{name}_huggingface")


@pytest.mark.parametrize("name", some_slow([*HEADS, *extensions.EXPORTED], QUICK))
def test_export_of_before_answers_as_before(name, tiny_files, tmp_path):
    if name in TINY:
        found = extensions.signature_answers(tiny_files / f"{name}_export")
        _assert_as_before(found, "extensions.npz", f"{name}_export")
        return
    with tarfile.open(STORED / f"{_stored(name)}_export.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    _assert_as_before(make.call_saved_model(tmp_path, **make.request_of(name)), "served.npz", name)


@pytest.mark.parametrize("head", some_slow(HEADS, QUICK))
def test_export_of_today_answers_as_before(head, tmp_path):
    shutil.copy(STORED / f"{_stored(head)}.keras", tmp_path / "model.keras")
    shutil.copy(STORED / "vocab.txt", tmp_path)
    if head in make.TASKS:
        (tmp_path / "task.json").write_text(json.dumps(make.TASKS[head]))
    version = export(ExportSettings(str(tmp_path), str(tmp_path / "out"), inputs="text", warm_up_lengths=""))
    _assert_as_before(make.call_saved_model(version, **make.request_of(head)), "served.npz", head)


@pytest.mark.parametrize("masking", some_slow(["dynamic", "static"], QUICK))
def test_records_of_today_are_those_of_before(masking, tmp_path, run_module):
    built = run_module(*make.build_arguments(STORED, tmp_path / "data", masking))
    assert built.returncode == 0, built.stderr
    before, now = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (STORED / masking, tmp_path / "data")
    )
    # Settings that no build has any more are in the stored manifest alone.
    manifests = [json.loads(one.pop("manifest.json")) for one in (before, now)]
    assert before == now and manifests[1].items() <= manifests[0].items()


def _assert_curve(run, name):
    expected, found = json.loads((STORED / "curves.json").read_text())[name], make.history(run)
    assert len(found) == len(expected)
    for before, now in zip(expected, found):
        for key, value in before.items():
            if value:
                # Another machine's sums differ in their last bits, and history.csv keeps six digits.
                assert float(now[key]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), (key, before["step"])
            else:
                assert not now[key], key


@pytest.mark.parametrize("name", some_slow(make.PRETRAININGS, QUICK))
def test_pretraining_curve_is_that_of_before(name, tmp_path):
    run = pretrain(make.pretraining_settings(STORED, tmp_path / "run", **make.PRETRAININGS[name]))
    _assert_curve(run, f"pretraining: {name}")


@pytest.mark.parametrize("name", some_slow(make.FINETUNINGS, QUICK))
def test_finetuning_curve_is_that_of_before(name, tmp_path):
    run = finetune(make.finetuning_settings(STORED, tmp_path / "run", **make.FINETUNINGS[name]))
    _assert_curve(run, f"finetuning: {name}")


def _model_of_later(folder):
    with zipfile.ZipFile(STORED / "classifier.keras") as stored, zipfile.ZipFile(folder / "model.keras", "w") as later:
        for name in stored.namelist():
            content = stored.read(name)
            if name == "config.json":
                values = json.loads(content)
                values["config"]["format_version"] = 9
                content = json.dumps(values)
            later.writestr(name, content)


def _json_of_later(name, values):
    return lambda folder: files.write_json(folder / name, values | {"format_version": 9})


@pytest.mark.parametrize(
    "write, read, message",
    [
        (
            _model_of_later,
            albert_tf.load,
            "cannot read '.*model.keras' as a Keras model: it has format_version 9; albert",
        ),
        (
            _json_of_later("albert_tokenizer.json", {}),
            load_tokenizer,
            "albert_tokenizer.json' has format_version 9; albert",
        ),
        (
            _json_of_later("manifest.json", files.read_json(STORED / "static" / "manifest.json")),
            read_manifest,
            "manifest.json' has format_version 9; albert-tf .* reads 3",
        ),
    ],
)
def test_what_a_later_version_wrote_is_refused_by_its_number(tmp_path, write, read, message):
    write(tmp_path)
    with refused(message):
        read(tmp_path)


def test_every_extension_is_stored():
    """A field that no stored file sets could be read wrongly by a later version; the others change no layout."""
    stored = set().union(
        *extensions.ENCODERS.values(), extensions.XLNET, extensions.ROBERTA, extensions.MODERNBERT, extensions.SIZES
    )
    others = {"inner_group_num", "always_project", "initializer_range", "gate_init", "rotary_theta"}
    others |= {"depth_lora_target", "hidden_dropout_prob", "attention_probs_dropout_prob"}
    others |= {"halting_threshold", "ponder_cost", "equilibrium_phantom_steps", "equilibrium_damping"}
    others |= {"extensions", "unused"}
    # In the folders of transformers in tests/albert_tf/gold.
    others |= {"without_bias", "embedding_norm", "word_transform", "rotary_factor"}
    assert {*albert_tf.AlbertConfig.__dataclass_fields__, *KEYS} - stored == others
