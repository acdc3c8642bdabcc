"""`serving.start` exports a model once, starts a server and a gateway, and ends them together; the image starts it."""

import dataclasses
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from absl import flags

import serving
from serving import start
from serving.start import StartSettings
from tfrecords.base.errors import UserError
from tfrecords.base.files import write_json
from tfrecords.base.settings import define_flags, read_flags

IMAGE = (Path(serving.__file__).parent / "deploy" / "Dockerfile").read_text()


def write_version(folder, **exported):
    (folder / "assets.extra").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"")
    write_json(folder / "assets.extra" / "manifest.json", {"export": exported})


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings of a model folder; an export writes a version that holds what was asked for."""
    (tmp_path / "film").mkdir()
    (tmp_path / "film" / "model.keras").write_text("")
    exports = []

    def export(asked):
        exports.append(asked)
        target = Path(asked.output_dir) / str(len(exports))
        write_version(target, **dataclasses.asdict(asked))
        return target

    monkeypatch.setattr(start, "export", export)
    return StartSettings(model=str(tmp_path / "film"), output_dir=str(tmp_path / "out")), exports


def test_a_model_is_exported_once(settings, tmp_path):
    settings, exports = settings
    assert start.find_servable(settings) == tmp_path / "out" / "film" == start.find_servable(settings)
    assert len(exports) == 1 and (exports[0].inputs, exports[0].compute) == ("text", "auto")
    start.find_servable(dataclasses.replace(settings, compute="float32"))
    assert len(exports) == 2
    later = time.time() + 10
    os.utime(tmp_path / "film" / "model.keras", (later, later))
    start.find_servable(settings)
    assert len(exports) == 3


def test_an_export_is_served_as_it_is(settings, tmp_path):
    settings, exports = settings
    write_version(tmp_path / "servable" / "3")
    settings = dataclasses.replace(settings, model=str(tmp_path / "servable"))
    assert start.find_servable(settings) == tmp_path / "servable" and not exports
    with pytest.raises(UserError, match=rf"give its parent folder, '{tmp_path}/servable'"):
        start.find_servable(dataclasses.replace(settings, model=str(tmp_path / "servable" / "3")))


def test_the_embedded_server_has_the_gateway_and_the_real_one_has_it_in_front(settings, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings[0], api_key_file="keys", bind_address="0.0.0.0")
    monkeypatch.setattr(start.shutil, "which", lambda name: None)
    ((python, *command),) = start.commands(settings, tmp_path / "out" / "film")
    assert python == sys.executable and command[:2] == ["-m", "serving.model_server"]
    assert {"--gateway_port=8080", "--port=8500", "--bind_address=0.0.0.0", "--gateway_api_key_file=keys"} <= {*command}
    monkeypatch.setattr(start.shutil, "which", lambda name: f"/usr/bin/{name}")
    server, gateway = start.commands(settings, tmp_path / "out" / "film")
    assert server[0] == "/usr/bin/tensorflow_model_server" and "--model_name=film" in server
    assert not any("address" in flag or "gateway" in flag for flag in server), "the real server has no such flags"
    assert gateway[1:3] == ["-m", "serving.gateway"] and "--model=film" in gateway and "--api_key_file=keys" in gateway


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("how", ["one ends", "SIGTERM"])
def test_processes_end_together(tmp_path, how):
    lines = """
import pathlib, signal, sys, time
signal.signal(15, lambda *_: (pathlib.Path(sys.argv[1]).touch(), sys.exit()))
pathlib.Path(sys.argv[1] + ".up").touch()
time.sleep(60)
"""
    waiting = [sys.executable, "-c", lines, str(tmp_path / "a")]
    up = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)\n"
    other = [sys.executable, "-c", f"{up}sys.exit(7)" if how == "one ends" else "import time; time.sleep(60)"]
    if how == "SIGTERM":

        def ask():
            while not (tmp_path / "a.up").exists():
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=ask).start()
    status = start.run_together([waiting, [*other, str(tmp_path / "a.up")]])
    assert status == (7 if how == "one ends" else 0) and (tmp_path / "a").exists()


def test_the_image_starts_it():
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", IMAGE, re.MULTILINE)[1])
    assert entry[:2] == ["albert-tf", "start"]
    values = flags.FlagValues()
    define_flags(StartSettings, values)
    values(["start", *entry[2:], "--model=m"])
    settings = read_flags(StartSettings, values)
    ports = [settings.port, settings.grpc_port, settings.rest_api_port]
    assert re.search(r"^EXPOSE (.*)$", IMAGE, re.MULTILINE)[1].split() == [str(port) for port in ports]
    assert settings.bind_address == "0.0.0.0" and settings.output_dir in IMAGE.partition("VOLUME")[2]
    assert re.findall(r"^USER (.*)$", IMAGE, re.MULTILINE) == ["1000:1000"]
