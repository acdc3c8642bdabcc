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

import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats import save_keras
from albert_tf.models.base import EncoderModel
from serving.check import ask_once
from serving.export import ExportSettings, export, main
from serving.exportable import ExportOptions, make_exportable
from serving.exportable.samples import WARM_UP
from serving.manifest import MANIFEST, read_manifest
from tests.refusals import lines, refused
from tfrecords.base.errors import UserError


@pytest.fixture(scope="session")
def models(exported):
    """Folders with classifiers, with exits and without, their vocabulary and task; made before `saved` stands in."""
    return [str(exported(name).parents[1]) for name in ("ids", "int8")]


@pytest.fixture
def settings(models, tmp_path):
    return ExportSettings(models[0], str(tmp_path / "out"), warm_up_lengths="")


@pytest.fixture
def write(settings):
    """write(**changes): exports with these changes of the settings; gives the version's path."""
    return lambda **changes: export(dataclasses.replace(settings, **changes))


@pytest.fixture
def saved(monkeypatch):
    """What was to be saved, in place of a SavedModel."""
    exportables = []

    def save(exportable, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"graph")
        exportables.append(exportable)

    monkeypatch.setattr("serving.exporting.save", save)
    return exportables


def test_what_does_not_load_is_no_version(write, saved, settings, monkeypatch):
    monkeypatch.setattr("serving.exporting.ask_once", ask_once)
    with refused("the export failed its check: loading: "):
        write()
    assert saved and not list(Path(settings.output_dir).iterdir())


def test_a_version_of_another_depth_is_that_model_and_says_so(write, saved, models):
    """Steps with exits of their own have one depth."""
    manifest = read_manifest(write(model=models[1], depth=5))
    depths = saved[0].encoder.config.num_hidden_layers, manifest["config"]["num_hidden_layers"]
    assert (*depths, manifest["export"]["depth"]) == (5, 5, 5)


def test_merged_low_rank_is_said_and_refused_where_there_is_none(write, saved, make_model, tokenizer, tmp_path):
    with refused("--merge_low_rank: this model has no low rank by depth"):
        write(merge_low_rank=True)
    model = make_model("embedder", family="low rank")
    (tmp_path / "low").mkdir()
    save_keras(model, tmp_path / "low" / "model.keras")
    manifest = read_manifest(write(model=str(tmp_path / "low"), merge_low_rank=True))
    assert manifest["export"]["merge_low_rank"] and manifest["config"]["sharing"] == "none"
    assert saved[0].encoder.config.depth_lora_rank == 0 and len(saved[0].encoder.attentions) == 3
    # The model is the one that was trained.


def test_what_is_exported_is_what_the_settings_say(settings, write, saved, tmp_path):
    changes = {"inputs": "text", "max_seq_length": 20, "top_k": 3, "doc_stride": 7, "max_query_length": 9,
               "num_choices": 2, "exit_rule": "movement"}  # fmt: skip
    (tmp_path / "lines").write_text("the cat\n\nparis\n")
    version = write(**changes, calibration_text=str(tmp_path / "lines"))
    options, manifest = saved[0].options, read_manifest(version)
    assert options.tokenizer.sha256 == manifest["tokenizer_sha256"] and manifest["inputs"] == "text"
    for name in changes.keys() - {"inputs"}:
        assert getattr(options, name) == changes[name] == manifest["export"][name]
    assert options.calibration[1].tolist() == [4, 3] and options.calibration[0][0, 0] == 2
    assert options.task == manifest["task"] and options.task["inputs"] == ["text"]
    assert saved[0].encoder.options.compute == "float32"
    write()
    # Of a model whose rows were never longer than the task's, no longer ones are taken.
    shutil.copytree(settings.model, tmp_path / "other")
    (tmp_path / "other" / "task.json").write_text('{"max_seq_length": 16}')
    write(model=str(tmp_path / "other"))
    assert [one.options.max_seq_length for one in saved] == [20, 48, 16]


def test_warm_up_requests_are_as_long_as_asked_and_no_longer_than_the_model(write, saved):
    names = ("serving_default", "classify")
    version = write(warm_up_lengths="16,64,128", warm_up_signatures=",".join(names))
    assert len(list(tf.data.TFRecordDataset(str(version / WARM_UP)))) == 2 * len(names)
    assert MANIFEST.endswith("json") and WARM_UP in read_manifest(version)["files_sha256"]


def test_versions_count_up_and_are_never_overwritten(write, saved, tmp_path):
    (tmp_path / "out" / "notes").mkdir(parents=True)
    assert write().name == "1"
    assert write(version=7).name == "7"
    assert write().name == "8"
    with refused("version 7 exists"):
        write(version=7)


def test_two_exports_at_once_have_two_versions(write, monkeypatch, tmp_path):
    def save(exportable, path):
        path.mkdir()
        for number in ("1", "2", "9"):
            (tmp_path / "out" / number / "variables").mkdir(parents=True)

    monkeypatch.setattr("serving.exporting.save", save)
    monkeypatch.setattr("serving.exporting.ask_once", lambda version, exportable: None)
    assert write().name == "3"
    shutil.rmtree(tmp_path / "out")
    with refused(r"version 9 exists in .*; leave out --version"):
        write(version=9)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1", "2", "9"]


@pytest.mark.parametrize("fails", ["serving.exporting.write_manifest", "serving.exporting.check"])
def test_an_export_that_fails_leaves_no_version(settings, saved, tmp_path, monkeypatch, fails):
    def fail(folder, *arguments):
        # A server that polls the folder takes numbers for versions; none is there before all is.
        assert not str(folder.name).isdigit() and (folder / "saved_model.pb").is_file()
        raise UserError("No space left")

    monkeypatch.setattr(fails, fail)
    with refused("No space left"):
        export(dataclasses.replace(settings, check=True) if "check" in fails else settings)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_version_that_passes_its_check_says_how_much_it_differs(write, saved, monkeypatch, capsys):
    monkeypatch.setattr("serving.exporting.check", lambda version, model, exportable: {"logits": 1.25e-7})
    assert read_manifest(write(check=True))["check"] == {"logits": 1.25e-7}
    assert capsys.readouterr().out == "check: logits differs by at most 1.2e-07 from the Keras model\n"
    assert read_manifest(write())["check"] is None


def test_what_a_killed_export_left_is_removed_and_what_runs_is_not(write, saved, tmp_path):
    finished = subprocess.Popen(["true"])
    finished.wait()
    names = [f".writing-1-{process}-{socket.gethostname()}" for process in (finished.pid, os.getppid())]
    elsewhere = f".writing-1-{finished.pid}-another-machine"
    for name in (*names, elsewhere):
        (tmp_path / "out" / name).mkdir(parents=True)
    with refused("cannot warm up 'none'; the signatures are serving_default, "):
        write(warm_up_lengths="8", warm_up_signatures="none")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {names[1], elsewhere}


IMPOSSIBLE = r"""
{"inputs": "audio"} | --inputs=audio
{"max_seq_length": 49} | --max_seq_length=49.*from 8 to the 48 tokens
{"max_seq_length": 2} | --max_seq_length=2
{"version": -1} | --version=-1
{"warm_up_lengths": "16,x"} | --warm_up_lengths=16,x
{"warm_up_lengths": "16,7"} | --warm_up_lengths=16,7 must be lengths of at least 8
{"top_k": 501} | --top_k=501 must be from 1 to the vocabulary's
{"doc_stride": 0} | --doc_stride=0
{"compute": "float8"} | float8
{"check": true, "other_cpu": true, "compute": "bfloat16"} | --check runs what --other_cpu says
{"other_cpu": true} | --other_cpu is for --compute=bfloat16; float32 is written on any
{"model": "nowhere"} | no model at .nowhere
{"calibration_text": "/dev/null"} | holds no text
{"engine": "litert", "compute": "bfloat16"} | --engine=litert computes in float32 or int8, not in bfloat16
{"engine": "litert", "compute": "auto"} | --engine=litert computes in float32 or int8, not in auto
{"engine": "litert", "warm_up_lengths": "8"} | --warm_up_lengths=8 is for --engine=tensorflow
{"engine": "litert", "calibration_text": "lines.txt"} | --calibration_text=lines.txt is for --engine=tensorflow
"""


@pytest.mark.parametrize("line", lines(IMPOSSIBLE))
def test_impossible_exports_are_named(write, tmp_path, line):
    change, message = line.split(" | ")
    with refused(message):
        write(**json.loads(change))
    assert not (tmp_path / "out").exists()


def test_for_another_cpu_is_written_what_this_one_cannot_run(settings, write, saved, tmp_path, monkeypatch, capsys):
    def probed(*arguments):
        raise UserError("no kernels")

    monkeypatch.setattr("serving.inference.onednn.require", probed)
    for module in ("inference.onednn", "exporting"):
        monkeypatch.setattr(f"serving.{module}.can_run", lambda compute, *_: compute != "bfloat16")
    with refused("no AVX-512; choose float32 or int8, or export with --other_cpu for one that"):
        write(compute="bfloat16")
    assert not list((tmp_path / "out").glob("*"))
    main(dataclasses.replace(settings, compute="bfloat16", other_cpu=True))
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("not tried, since this CPU cannot run it: needs TensorFlow 2.17 or later for x86")
    described, exportable = read_manifest(tmp_path / "out" / "1")["compute"], saved[0]
    assert described["compute"] == exportable.cpu_check.compute == "bfloat16" and "avx512" in described["requires"]
    assert sum(variable.dtype == tf.bfloat16 for variable in exportable.variables) >= 4
    # It is a graph that this machine can build.
    assert exportable.signatures()["serving_default"].concrete().structured_outputs["logits"].shape[1] == 3


def test_the_command_says_what_it_wrote(settings, saved, capsys):
    main(settings)
    said = capsys.readouterr()
    (exported,) = said.out.splitlines()
    assert exported.startswith(f"exported {settings.output_dir}/1 (0.0 MB)")
    assert said.err.splitlines()[-1].endswith(f"--model_name=out --model_base_path={settings.output_dir}")


def test_a_model_without_a_task_or_tokenizer(make_model, tokenizer, write, saved, tmp_path):
    make_model("encoder").save(tmp_path / "bare.keras")
    bare = {"model": str(tmp_path / "bare.keras")}
    assert read_manifest(write(**bare))["task"] is None
    with refused("--inputs=text needs the vocabulary"):
        write(**bare, inputs="text")
    with refused("--calibration_text needs the vocabulary"):
        write(**bare, calibration_text=__file__)
    tokenizer.save(tmp_path / "tokenizer")
    write(**bare, inputs="text", tokenizer=str(tmp_path / "tokenizer"))
    assert saved[-1].options.tokenizer.sha256 == tokenizer.sha256


class Headless(EncoderModel):
    """A model that nobody has written a servable for."""


def test_an_unknown_head_is_refused(make_model):
    with refused(r"a Headless cannot be exported; these can: AlbertClassifier, .*AlbertEncoder"):
        make_exportable(Headless(make_model("encoder")), ExportOptions(48))


DAMAGED = """
[1] | it holds no JSON object
{"export": [1]} | its 'export' is no JSON object
{"export": {"model": 3}} | its export's 'model' is no string
{"config": "x"} | its 'config' is no JSON object
{"created": 5} | its 'created' is no string
{"versions": null} | its 'versions' is no JSON object
"""


@pytest.mark.parametrize("line", lines(DAMAGED))
def test_a_damaged_manifest_is_one_line(tmp_path, line):
    text, said = line.split(" | ")
    whole = {"format_version": 2, "export": {"model": "m"}, "config": {}, "versions": {}, "created": "2026-01-01"}
    (tmp_path / MANIFEST).parent.mkdir()
    (tmp_path / MANIFEST).write_text(text if text[0] == "[" else json.dumps(whole | json.loads(text)))
    with refused(f"is damaged: {said}; export the model again"):
        read_manifest(tmp_path)


def test_a_model_is_loaded_as_the_settings_say(settings, write, monkeypatch):
    def loading(*arguments):
        assert arguments == (settings.model, settings.model, False, True, 3, True)
        raise UserError("as they say")

    monkeypatch.setattr("serving.evaluate.load", loading)
    flags = {"lower_case": False, "keep_accents": True, "depth": 3, "other_tokenizer": True}
    with refused("as they say"):
        write(tokenizer=settings.model, **flags)
