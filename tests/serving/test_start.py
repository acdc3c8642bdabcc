"""`serving.start` exports a model once, starts a server and a gateway, and ends them together; the image starts it."""

import dataclasses
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

import serving
from serving import start
from serving.export import ExportSettings
from serving.lite.start import LightStartSettings
from serving.litert import agreement
from serving.start import StartSettings
from tests.refusals import lines, parsed, refused
from tests.servers import free_ports
from tfrecords.base.errors import UserError
from tfrecords.base.files import write_json


def write_version(folder, **exported):
    folder.mkdir(parents=True)
    if exported.get("engine") == "litert":
        (folder / "model.tflite").write_bytes(b"")
        return
    (folder / "assets.extra").mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    described = {"format_version": 2, "export": exported, "config": {}, "versions": {}, "created": ""}
    write_json(folder / "assets.extra" / "manifest.json", described)


@pytest.fixture
def exports(monkeypatch):
    """What is exported; an export writes a version that holds what was asked for."""
    exports = []

    def export(asked):
        exports.append(asked)
        target = Path(asked.output_dir) / str(len(exports))
        write_version(target, **dataclasses.asdict(asked))
        return target

    monkeypatch.setattr(start, "export", export)
    return exports


@pytest.fixture
def settings(tmp_path, exports):
    """Settings of a model folder."""
    (tmp_path / "film").mkdir()
    (tmp_path / "film" / "model.keras").write_text("")
    return StartSettings(model=str(tmp_path / "film"), output_dir=str(tmp_path / "out"), engine="tensorflow")


def test_a_model_is_exported_once(settings, exports, tmp_path):
    assert start.find_servable(settings) == tmp_path / "out" / "film" == start.find_servable(settings)
    assert len(exports) == 1 and (exports[0].inputs, exports[0].compute) == ("text", "auto")
    start.find_servable(dataclasses.replace(settings, compute="float32"))
    assert len(exports) == 2
    later = time.time() + 10
    os.utime(tmp_path / "film" / "model.keras", (later, later))
    start.find_servable(settings)
    assert len(exports) == 3


# Whether the real server is installed, compute, what LiteRT lacks, whether 8 bits are near, exports, what is said.
ENGINES = """
true | "auto" | "" | true | ["tensorflow auto"] | "serving a SavedModel: tensorflow_model_server is installed;"
false | "bfloat16" | "" | true | ["tensorflow bfloat16"] | "serving a SavedModel: LiteRT has no bfloat16; "
false | "auto" | "" | true | ["litert int8"] | "serving a LiteRT version, without TensorFlow: tensor"
false | "auto" | "" | false | ["litert int8", "litert float32"] | "in float32, since 9 labels change; --comp"
false | "float32" | "" | false | ["litert float32"] | "--engine=tensorflow serves a SavedModel"
false | "auto" | "it halts" | true | ["tensorflow auto"] | "serving a SavedModel: it halts; "
"""


@pytest.mark.parametrize("line", lines(ENGINES))
def test_the_engine_is_chosen_by_rule_and_said(settings, exports, tmp_path, monkeypatch, capsys, line):
    real, compute, lacks, near, exported, said = map(json.loads, line.split(" | "))

    def load(asked):
        if lacks:
            raise start.NeedsSavedModel(lacks)

    monkeypatch.setattr(start.shutil, "which", lambda name: name if real else None)
    monkeypatch.setattr(start, "_loaded", load)
    monkeypatch.setattr(start, "_write", lambda loaded, asked: start.export(asked))
    monkeypatch.setattr(agreement, "agrees", lambda loaded, version: (near, "9 labels change"))
    settings = dataclasses.replace(settings, engine="auto", compute=compute)
    for _ in range(2):
        start.find_servable(settings)
        error = capsys.readouterr().err
        assert said in error or ("which was exported before" in error and said.startswith("in "))
        assert [f"{asked.engine} {asked.compute}" for asked in exports] == exported
    if lacks:
        with refused(lacks):
            start.find_servable(dataclasses.replace(settings, engine="litert"))


def test_a_server_answers_by_the_version_that_was_asked_for(settings, exports):
    """It loads the latest one, so an earlier one is not used again."""
    for compute in ("float32", "int8", "float32", "float32"):
        start.find_servable(dataclasses.replace(settings, compute=compute))
    assert [asked.compute for asked in exports] == ["float32", "int8", "float32"]


def test_models_of_one_name_are_not_taken_for_each_other(settings, exports, tmp_path, monkeypatch):
    start.find_servable(settings)
    other = tmp_path / "elsewhere" / "film"
    other.mkdir(parents=True)
    for model in (str(other), "film", "someone/film"):
        monkeypatch.chdir(other.parent)
        with refused(f"holds an export of '{tmp_path}/film', .* give another --name"):
            start.find_servable(dataclasses.replace(settings, model=model))
    monkeypatch.chdir(tmp_path)
    start.find_servable(dataclasses.replace(settings, model="film"))
    assert len(exports) == 1
    # Another folder in the place of the first, with files that are older than the export.
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "model.keras").write_text("other")
    os.utime(tmp_path / "older" / "model.keras", (1, 1))
    (tmp_path / "film").rename(tmp_path / "away")
    time.sleep(0.05)
    (tmp_path / "older").rename(tmp_path / "film")
    start.find_servable(settings)
    assert len(exports) == 2


@pytest.mark.parametrize("same", [True, False])
def test_of_two_first_starts_at_once_one_exports(settings, exports, tmp_path, monkeypatch, same, capfd):
    write, goes_on = start.export, threading.Event()
    monkeypatch.setattr(start, "export", lambda asked: goes_on.wait(30) and write(asked))
    other = tmp_path / "elsewhere" / "film"
    other.mkdir(parents=True)
    first = threading.Thread(target=start.find_servable, args=(settings,))
    first.start()
    while not (tmp_path / "out" / "film").exists():
        time.sleep(0.01)
    threading.Timer(0.3, goes_on.set).start()
    if same:
        assert start.find_servable(settings) == tmp_path / "out" / "film"
    else:
        with refused(f"holds an export of '{tmp_path}/film', .*; give another --name"):
            start.find_servable(dataclasses.replace(settings, model=str(other)))
    first.join()
    assert len(exports) == 1 and "another process is at work in" in capfd.readouterr().err


def test_a_first_start_that_fails_leaves_no_folder(settings, tmp_path, monkeypatch):
    def fail(asked):
        raise UserError("no tokenizer")

    monkeypatch.setattr(start, "export", fail)
    with refused("no tokenizer"):
        start.find_servable(settings)
    assert not (tmp_path / "out").exists()


def test_two_servers_have_two_ports(settings):
    for ports, message in (
        ({"port": 8501}, "--port and --rest_api_port are both 8501"),
        ({"grpc_port": 8080}, "--port and --grpc_port are both 8080; give each a port of its own"),
    ):
        with refused(message):
            dataclasses.replace(settings, **ports)
    dataclasses.replace(settings, rest_api_port=0)


@pytest.mark.parametrize("name", ["port", "grpc_port", "rest_api_port"])
def test_a_port_that_is_taken_is_said_before_anything_is_exported(settings, exports, name):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refused(f"--{name}={port} cannot be used on 127.0.0.1: .*; choose another"):
            start.main(dataclasses.replace(settings, **free_ports() | {name: port}))
    assert not exports


def test_an_export_is_served_as_it_is(settings, exports, tmp_path):
    write_version(tmp_path / "servable" / "3")
    settings = dataclasses.replace(settings, model=str(tmp_path / "servable"))
    assert start.find_servable(settings) == tmp_path / "servable" and not exports
    (tmp_path / "link").symlink_to("servable")
    assert settings.served_name(tmp_path / "link") == "link"
    # So is a number that is not there yet.
    for number in "34":
        with refused("is a version of an export; give its parent folder"):
            ExportSettings(model="m", output_dir=str(tmp_path / "servable" / number))
    with refused(rf"give its parent folder, '{tmp_path}/servable'"):
        start.find_servable(dataclasses.replace(settings, model=str(tmp_path / "servable" / "3")))


def test_a_missing_key_file_is_noticed_before_the_export(settings, exports):
    with refused("cannot read --api_key_file=keys"):
        start.main(dataclasses.replace(settings, api_key_file="keys", **free_ports()))
    assert not exports


def test_the_embedded_server_has_the_gateway_and_the_real_one_has_it_in_front(settings, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings, api_key_file="keys", bind_address="0.0.0.0")
    monkeypatch.setattr(start.shutil, "which", lambda name: None)
    ((python, *command),) = start.commands(settings, tmp_path / "out" / "film", "/s")
    assert python == sys.executable and command[:2] == ["-m", "serving.model_server"]
    assert {"--gateway_port=8080", "--port=8500", "--bind_address=0.0.0.0", "--gateway_api_key_file=keys"} <= {*command}
    assert "--grpc_max_threads=64" in command, "two cores would refuse an eighth client"
    monkeypatch.setattr(start.shutil, "which", lambda name: f"/usr/bin/{name}")
    server, gateway = start.commands(settings, tmp_path / "out" / "film", "/s")
    assert server[0] == "/usr/bin/tensorflow_model_server" and "--model_name=film" in server
    assert not any("address" in flag or "gateway" in flag for flag in server), "the real server has no such flags"
    assert gateway[1:3] == ["-m", "serving.gateway"] and "--model=film" in gateway and "--api_key_file=keys" in gateway
    # It would listen on every interface.
    assert {"--port=0", "--grpc_socket_path=/s", "--rest_api_port=0"} <= {*server} and "--target=unix:/s" in gateway
    opened = dataclasses.replace(settings, open_ports="grpc,rest")
    server, gateway = start.commands(opened, tmp_path / "out" / "film", "/s")
    assert {"--port=8500", "--rest_api_port=8501"} <= {*server} and "--target=127.0.0.1:8500" in gateway


@pytest.mark.parametrize(
    "real, address, keys, warned",
    [(True, "127.0.0.1", False, 1), (True, "0.0.0.0", False, 0), (False, "127.0.0.1", False, 0), (True, "::", True, 0)],
)
def test_ports_that_the_real_server_opens_to_all_are_named(
    settings, monkeypatch, capsys, tmp_path, real, address, keys, warned
):
    (tmp_path / "keys").write_text("alpha")
    monkeypatch.setattr(start.shutil, "which", lambda name: f"/usr/bin/{name}" if real else None)
    monkeypatch.setattr(StartSettings, "check_ports", lambda settings: None)
    monkeypatch.setattr(start, "run_together", lambda started: 0)
    with pytest.raises(SystemExit):
        key_file = str(tmp_path / "keys") if keys else ""
        start.main(dataclasses.replace(settings, bind_address=address, api_key_file=key_file))
    said = capsys.readouterr().err
    assert said.count("ports 8500 and 8501 are open on every network interface") == warned
    assert said.count("the ports that ask for no key are off (grpc, rest); see --open_ports") == keys


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


@pytest.mark.parametrize(
    "name, command, kind, given",
    [
        ("Dockerfile", ["albert-tf", "start"], StartSettings, "--model=m"),
        ("light.Dockerfile", ["albert-client", "start"], LightStartSettings, "--folder=m"),
    ],
)
def test_the_images_start_it(name, command, kind, given):
    image = (Path(serving.__file__).parent / "deploy" / name).read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", image, re.MULTILINE)[1])
    assert entry[:2] == command
    settings = parsed(kind, [*entry[2:], given])
    ports = [settings.port, settings.grpc_port, settings.rest_api_port]
    assert re.search(r"^EXPOSE (.*)$", image, re.MULTILINE)[1].split() == [str(port) for port in ports]
    assert settings.bind_address == "0.0.0.0"
    assert kind is LightStartSettings or settings.output_dir in image.partition("VOLUME")[2]
    assert re.findall(r"^USER (.*)$", image, re.MULTILINE) == ["1000:1000"]
    assert f":{settings.port}/health/ready" in image.partition("HEALTHCHECK")[2].partition("ENTRYPOINT")[0]
