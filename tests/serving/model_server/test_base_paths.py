"""A folder that holds no versions is explained, once and not every second."""

import logging

import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from serving.model_server import source


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
