"""Exporting: whole or not there, versions count up, what cannot be is refused, and what the command says.

No graph is built: `saved` stands in for the SavedModel. What is really saved, others load (`exported`).
"""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.loading import load
from albert_tf.models.base import EncoderModel
from albert_tf.training.start import load_start
from serving.check import expected_answers
from serving.export import ExportSettings, export, main
from serving.exportable import ExportOptions, make_exportable
from serving.manifest import FILE as MANIFEST
from serving.samples import WARM_UP
from tfrecords.base.errors import UserError


@pytest.fixture(scope="session")
def model(exported):
    """A folder with a classifier, its vocabulary and its task."""
    return exported("ids").parents[1]


@pytest.fixture
def settings(model, tmp_path):
    return ExportSettings(str(model), str(tmp_path / "out"), warm_up_lengths="")


@pytest.fixture
def saved(monkeypatch):
    """What was to be saved, in place of a SavedModel."""
    exportables = []

    def save(exportable, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"graph")
        exportables.append(exportable)

    monkeypatch.setattr("serving.export.save", save)
    return exportables


def manifest_of(version):
    return json.loads((version / MANIFEST).read_text())


def test_a_version_of_another_depth_is_that_model_and_says_so(settings, saved):
    version = export(dataclasses.replace(settings, depth=5))
    manifest = manifest_of(version)
    assert manifest["config"]["num_hidden_layers"] == 5 and manifest["export"]["depth"] == 5
    rows = {"input_ids": np.array([[2, 8, 9, 3]], np.int32), "lengths": np.array([4], np.int32)}
    answer = saved[0].signatures()["serving_default"].concrete()(**{name: tf.constant(rows[name]) for name in rows})
    deep, plain = (expected_answers(load(settings.model, depth=depth).model, rows)["logits"] for depth in (5, 0))
    np.testing.assert_allclose(answer["logits"], deep, atol=1e-5)
    assert np.abs(plain - deep).max() > 1e-3


def test_what_is_exported_is_what_the_settings_say(settings, saved, tmp_path):
    changes = {"inputs": "text", "max_seq_length": 20, "top_k": 3, "doc_stride": 7, "max_query_length": 9,
               "num_choices": 2, "padding": "computed", "exit_rule": "movement"}  # fmt: skip
    (tmp_path / "lines").write_text("the cat\n\nparis\n")
    version = export(dataclasses.replace(settings, **changes, calibration_text=str(tmp_path / "lines")))
    options, manifest = saved[0].options, manifest_of(version)
    assert options.inference.padding == manifest["compute"]["padding"] == "computed"
    assert options.tokenizer.sha256 == manifest["tokenizer_sha256"] and manifest["inputs"] == "text"
    for name in changes.keys() - {"inputs", "padding"}:
        assert getattr(options, name) == changes[name] == manifest["export"][name]
    assert options.calibration[1].tolist() == [4, 3] and options.calibration[0][0, 0] == 2
    assert options.task == manifest["task"] and options.task["inputs"] == ["text"]
    assert saved[0].encoder.options.compute == "float32"
    export(settings)
    # Of a model whose rows were never longer than the task's, no longer ones are taken.
    shutil.copytree(settings.model, tmp_path / "other")
    (tmp_path / "other" / "task.json").write_text('{"max_seq_length": 16}')
    export(dataclasses.replace(settings, model=str(tmp_path / "other")))
    assert [one.options.max_seq_length for one in saved] == [20, 48, 16]


def test_warm_up_requests_are_as_long_as_asked_and_no_longer_than_the_model(settings, saved):
    names = ("serving_default", "classify")
    version = export(dataclasses.replace(settings, warm_up_lengths="16,64,128", warm_up_signatures=",".join(names)))
    assert len(list(tf.data.TFRecordDataset(str(version / WARM_UP)))) == 2 * len(names)
    assert MANIFEST.endswith("json") and WARM_UP in manifest_of(version)["files_sha256"]


def test_versions_count_up_and_are_never_overwritten(settings, saved, tmp_path):
    (tmp_path / "out" / "notes").mkdir(parents=True)
    assert export(settings).name == "1"
    assert export(dataclasses.replace(settings, version=7)).name == "7"
    assert export(settings).name == "8"
    with pytest.raises(UserError, match="version 7 exists"):
        export(dataclasses.replace(settings, version=7))


@pytest.mark.parametrize("fails", ["serving.manifest.write_manifest", "serving.check.check"])
def test_an_export_that_fails_leaves_no_version(settings, saved, tmp_path, monkeypatch, fails):
    def fail(folder, *arguments):
        # A server that polls the folder takes numbers for versions; none is there before all is.
        assert not str(folder.name).isdigit() and (folder / "saved_model.pb").is_file()
        raise UserError("No space left")

    monkeypatch.setattr(fails, fail)
    with pytest.raises(UserError, match="No space left"):
        export(dataclasses.replace(settings, check=True) if "check" in fails else settings)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_version_that_passes_its_check_says_how_much_it_differs(settings, saved, monkeypatch, capsys):
    monkeypatch.setattr("serving.check.check", lambda version, model, exportable: {"logits": 1.25e-7})
    assert manifest_of(export(dataclasses.replace(settings, check=True)))["check"] == {"logits": 1.25e-7}
    assert capsys.readouterr().out == "check: logits differs by at most 1.2e-07 from the Keras model\n"
    assert manifest_of(export(settings))["check"] is None


def test_what_a_killed_export_left_is_removed_and_what_runs_is_not(settings, saved, tmp_path):
    finished = subprocess.Popen(["true"])
    finished.wait()
    names = [f".writing-1-{process}-{socket.gethostname()}" for process in (finished.pid, os.getppid())]
    elsewhere = f".writing-1-{finished.pid}-another-machine"
    for name in (*names, elsewhere):
        (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(UserError, match="cannot warm up 'none'; the signatures are serving_default, "):
        export(dataclasses.replace(settings, warm_up_lengths="8", warm_up_signatures="none"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {names[1], elsewhere}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "audio"}, "--inputs=audio"),
        ({"max_seq_length": 49}, r"--max_seq_length=49.*from 8 to the 48 tokens"),
        ({"max_seq_length": 2}, "--max_seq_length=2"),
        ({"version": -1}, "--version=-1"),
        ({"warm_up_lengths": "16,x"}, "--warm_up_lengths=16,x"),
        ({"warm_up_lengths": "16,7"}, "--warm_up_lengths=16,7 must be lengths of at least 8"),
        ({"top_k": 501}, "--top_k=501 must be from 1 to the vocabulary's"),
        ({"doc_stride": 0}, "--doc_stride=0"),
        ({"compute": "float8"}, "float8"),
        ({"check": True, "other_cpu": True, "compute": "bfloat16"}, "--check runs what --other_cpu says"),
        (
            {"performance_hint": "throughput"},
            "--performance_hint=throughput is for --compute=bfloat16, int8 or int8_vnni",
        ),
        ({"other_cpu": True}, "--other_cpu is for --compute=bfloat16 or int8_vnni; float32 is written on any"),
        ({"model": "nowhere"}, "no model at .nowhere"),
        ({"calibration_text": os.devnull}, "holds no text"),
    ],
)
def test_impossible_exports_are_named(settings, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        export(dataclasses.replace(settings, **change))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("compute", "refusal", "dtypes"),
    [
        ("bfloat16", "no AVX-512; choose float32 or int8, or export with --other_cpu for one that", {tf.bfloat16}),
        ("int8_vnni", "neither avx512_vnni nor avx_vnni", {tf.int8, tf.qint8}),
    ],
)
def test_for_another_cpu_is_written_what_this_one_cannot_run(
    settings, saved, tmp_path, monkeypatch, capsys, compute, refusal, dtypes
):
    def probed():
        raise UserError("no kernels")

    monkeypatch.setattr("serving.inference.encoder.check_kernels", probed)
    monkeypatch.setattr("serving.inference.options.has_avx512", lambda: False)
    monkeypatch.setattr("serving.inference.options.has_vnni", lambda: False)
    monkeypatch.setattr("serving.cpu.can_run", lambda compute, *_: compute == "float32")
    settings = dataclasses.replace(settings, compute=compute)
    with pytest.raises(UserError, match=refusal):
        main(settings)
    assert not list((tmp_path / "out").glob("*"))
    main(dataclasses.replace(settings, other_cpu=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("not tried, since this CPU cannot run it: needs TensorFlow for x86")
    described = manifest_of(tmp_path / "out" / "1")["compute"]
    assert described["compute"] == compute and "avx512" in described["requires"]
    assert sum(variable.dtype in dtypes for variable in saved[0].variables) >= 4
    # It is a graph that this machine can build.
    assert saved[0].signatures()["serving_default"].concrete().structured_outputs["logits"].shape[1] == 3
    assert saved[0].cpu_check.compute == compute


def test_the_command_says_what_it_wrote_and_what_another_compute_would_add(settings, saved, monkeypatch, capsys):
    monkeypatch.setattr("serving.cpu.cpu_flags", lambda _: {"fpu", "avx2", "avx512f", "avx512_bf16"})
    main(settings)
    said = capsys.readouterr()
    exported, advice = said.out.splitlines()
    assert exported.startswith(f"exported {settings.output_dir}/1 (0.0 MB)")
    assert (
        advice
        == "this CPU has avx512_bf16: --compute=bfloat16 is 1.6 to 2 times as fast as float32 (docs/inference.md)"
    )
    assert said.err.splitlines()[-1].endswith(f"--model_name=out --model_base_path={settings.output_dir}")
    assert manifest_of(Path(settings.output_dir) / "1")["advice"] == advice


def test_a_model_without_a_task_or_tokenizer(make_model, tokenizer, settings, saved, tmp_path):
    make_model("encoder").save(tmp_path / "bare.keras")
    settings = dataclasses.replace(settings, model=str(tmp_path / "bare.keras"))
    assert manifest_of(export(settings))["task"] is None
    with pytest.raises(UserError, match="--inputs=text needs the vocabulary"):
        export(dataclasses.replace(settings, inputs="text"))
    with pytest.raises(UserError, match="--calibration_text needs the vocabulary"):
        export(dataclasses.replace(settings, calibration_text=__file__))
    tokenizer.save(tmp_path / "tokenizer")
    assert load(settings.model, str(tmp_path / "tokenizer")).tokenizer.sha256 == tokenizer.sha256


def test_a_bare_vocabulary_keeps_accents_where_that_is_asked(make_model, settings, saved, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "schon", "schön"]))
    make_model("encoder", vocab_size=7).save(tmp_path / "model.keras")
    settings = dataclasses.replace(settings, model=str(tmp_path / "model.keras"), inputs="text")
    assert load(settings.model).tokenizer.encode("Schön") == [5]
    start = load_start(settings.model, "", keep_accents=True)
    assert start.tokenizer.keep_accents and start.tokenizer.encode("Schön") == [6]
    version = export(dataclasses.replace(settings, keep_accents=True))
    assert manifest_of(version)["tokenizer_sha256"] == start.tokenizer.sha256


def test_a_tokenizer_of_another_model_is_refused(make_model, tokenizer, tmp_path):
    make_model("classifier", vocab_size=20).save(tmp_path / "model.keras")
    tokenizer.save(tmp_path)
    with pytest.raises(UserError, match=rf"{tokenizer.vocab_size} pieces, the model only 20"):
        load(str(tmp_path))


class Headless(EncoderModel):
    """A model that nobody has written a servable for."""


def test_an_unknown_head_is_refused(make_model):
    with pytest.raises(UserError, match=r"a Headless cannot be exported; these can: AlbertPretrainer, .*AlbertEncoder"):
        make_exportable(Headless(make_model("encoder")), ExportOptions(48))
