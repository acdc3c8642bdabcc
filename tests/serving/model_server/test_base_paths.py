"""What is wrong with a base path is explained, once and not every second; what is no version fails in one line."""

import logging
import os

import pytest
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from serving.model_server import source
from serving.model_server.servable import SavedModel
from serving.model_server.status import StatusError


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("saved_model.pb", "It is a version itself: move its files into a subfolder '1'"),
        ("model.keras", "It is a model that is not exported: 'python -m serving.export --model="),
        ("model.safetensors", "It is a model that is not exported"),
        ("other.txt", "Did you forget to name your leaf directory as a number (eg. '/1/')?"),
    ],
)
def test_a_folder_without_versions_is_explained_once(tmp_path, caplog, monkeypatch, file, advice):
    (tmp_path / file).write_text("")
    found = []
    watched = source.StoragePathSource(lambda name, versions: found.append(versions), 0)
    for _ in range(3):
        watched.configure({"m": ModelConfig(name="m", base_path=str(tmp_path))})
    assert found == [{}] * 3
    assert caplog.text.count("No versions of servable m found") == 1 and advice in caplog.text
    monkeypatch.setattr(source, "_REPEAT_SECONDS", 0.0)
    watched.configure({"m": ModelConfig(name="m", base_path=str(tmp_path))})
    assert caplog.text.count("No versions of servable m found") == 2
    (tmp_path / file).unlink()
    tmp_path.rmdir()
    watched.configure({"m": ModelConfig(name="m", base_path=str(tmp_path))})
    assert "could not find base path" in caplog.text and caplog.records[-1].levelno == logging.ERROR


@pytest.mark.parametrize(
    ("policy", "message"), [("all {}", "Duplicate version directories"), ("specific { versions: 9 }", "Version 9 of")]
)
def test_what_every_poll_finds_is_logged_once(tmp_path, caplog, policy, message):
    for name in ("7", "007"):
        (tmp_path / name).mkdir()
    text = f'name: "m" base_path: "{tmp_path}" model_version_policy {{ {policy} }}'
    for _ in range(3):
        source.aspired_versions(text_format.Parse(text, ModelConfig()))
    assert caplog.text.count(message) == 1


def _pipe(version):
    version.mkdir()
    os.mkfifo(version / "saved_model.pb")


def _device(version):
    version.mkdir()
    (version / "saved_model.pb").symlink_to("/dev/zero")


def _circle(version):
    version.symlink_to("2")
    (version.parent / "2").symlink_to("1")


@pytest.mark.parametrize(
    "make",
    [lambda version: version.symlink_to("1"), _circle, lambda version: version.write_text("x"), _pipe, _device],
    ids=["link to itself", "links in a circle", "file", "pipe", "device"],
)
def test_what_is_no_version_is_found_and_fails_in_one_line(tmp_path, make):
    make(tmp_path / "1")
    path = source.list_versions(str(tmp_path))[1]
    with pytest.raises(StatusError, match="NOT_FOUND: Could not find SavedModel") as failed:
        SavedModel(path)
    assert "\n" not in str(failed.value)
