"""Models that come and go, and labels, while the server runs: by ReloadConfig, and by its config file."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2

from serving.model_server.core import ServerCore
from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import config_text, start, status_of, wait_until
from tests.serving.model_server.models import export_half_plus_two

QUICKLY = {"model_config_file_poll_wait_seconds": 0.1}


def config(text="", **base_paths):
    """text: of more models, or fields of them."""
    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(config_text(**base_paths)[:-1] + text + "}", request.config)
    return request


@pytest.fixture
def three(tmp_path):
    export_half_plus_two(tmp_path / "three" / "1", bias=3.0)
    return tmp_path / "three"


def test_reload_adds_and_removes_models(start_server, half_plus_two, three):
    running = start_server()
    running.predict(2.0)
    both = config(default=half_plus_two, three=three)
    both.metric_names.append("/tensorflow/serving/request_count")
    response = running.models.HandleReloadConfigRequest(both)
    assert response.status.error_code == 0
    assert response.metric[0].name == "/tensorflow/serving/request_count"
    assert running.predict(2.0, model="three") == [4.0]
    running.models.HandleReloadConfigRequest(config(three=three))
    assert running.predict(2.0, model="three") == [4.0]
    assert status_of(running.predict, 2.0).startswith("NOT_FOUND")


def test_reload_refusals(start_server, half_plus_two, tmp_path):
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "saved_model.pb").write_bytes(b"no model")
    running = start_server()

    def refusal(request):
        return status_of(running.models.HandleReloadConfigRequest, request)

    assert refusal(model_management_pb2.ReloadConfigRequest()) == (
        "INVALID_ARGUMENT: ServerModelConfig type not supported by HandleReloadConfigRequest. "
        "Only ModelConfigList is currently supported"
    )
    for text, message in (
        ('name: "m" base_path: "relative" model_platform: "tensorflow"',
         "Expected model m to have an absolute path or URI; got base_path()=relative"),
        ('name: "m" base_path: "/a" model_platform: "other"', "Model m requests unsupported platform other"),
        ('name: "a" base_path: "/models\\000/a" model_platform: "tensorflow"',
         r"The base path of model a holds a NUL character: '/models\x00/a'"),
        ('name: "default" base_path: "/a" model_platform: "tensorflow"',
         "Illegal to list model default multiple times in config list"),
        ('base_path: "/a" model_platform: "tensorflow"',
         "The model at /a has no name, so no request could ask it: give name")
    ):  # fmt: skip
        assert refusal(config(f"config {{ {text} }}", default=half_plus_two)) == f"INVALID_ARGUMENT: {message}"
    other = refusal(config(f'config {{ name: "default" base_path: "{half_plus_two}" model_platform: "other" }}'))
    assert other.startswith("INVALID_ARGUMENT: Illegal to change a model's platform")
    bad = refusal(config(default=half_plus_two, bad=tmp_path / "bad"))
    assert bad.startswith("UNKNOWN: 1 model(s) did not become available: {{{name: bad version: 1} due to error:")
    assert running.predict(2.0) == [3.0]


def test_labels(start_server, tmp_path):
    for number in (1, 2):
        export_half_plus_two(tmp_path / "m" / str(number), bias=number + 1.0)
    running = start_server(model_base_path=tmp_path / "m")
    request = config(default=tmp_path / "m")
    model = request.config.model_config_list.config[0]
    model.model_version_policy.all.SetInParent()
    model.version_labels["stable"] = 1
    running.models.HandleReloadConfigRequest(request)
    assert running.predict(2.0, label="stable") == [3.0]
    assert running.predict(2.0) == [4.0]
    model.version_labels["canary"] = 9
    assert status_of(running.models.HandleReloadConfigRequest, request) == (
        "FAILED_PRECONDITION: Request to assign label to version 9 of model default, "
        "which is not currently available for inference"
    )
    assert running.predict(2.0, label="stable") == [3.0]
    answer = running.http("POST", "/v1/models/default/labels/stable:predict", {"inputs": 2.0})
    assert answer[1] == {"outputs": 3.0}


def labelled(text, name, version):
    """The text of a config file with the label `stable` in its model of that name."""
    return text.replace(f'name: "{name}"', f'name: "{name}" version_labels {{ key: "stable" value: {version} }}')


def test_labels_at_start_need_the_flag(start_server, tmp_path, half_plus_two):
    file = tmp_path / "models.config"
    file.write_text(labelled(config_text(default=half_plus_two), "default", 123))
    with pytest.raises(StatusError, match="not currently available for inference"):
        start_server(model_config_file=file)
    running = start_server(model_config_file=file, allow_version_labels_for_unavailable_models=True)
    assert running.predict(2.0, label="stable") == [3.0]


def test_a_config_file_is_read_again_and_one_that_goes_wrong_takes_nothing_away(
    start_server, tmp_path, half_plus_two, three, caplog
):
    file = tmp_path / "models.config"
    file.write_text(config_text(default=half_plus_two))
    running = start_server(model_config_file=file, **QUICKLY)
    for text, complaint in (
        ("not a config", "Invalid protobuf file"),
        ("  # nothing yet\n", "FAILED_PRECONDITION: Cannot transition to requested config."),
        (config_text(default=half_plus_two, three=tmp_path / "there"), "could not find base path"),
    ):
        file.write_text(text)
        wait_until(lambda complaint=complaint: complaint in caplog.text)
        assert running.predict(2.0) == [3.0]
    good = config_text(default=half_plus_two, three=three)
    file.write_text(good)
    wait_until(lambda: running.predict(2.0, model="three") == [4.0])
    file.write_text(labelled(good, "three", 1))
    wait_until(lambda: running.predict(2.0, model="three", label="stable") == [4.0])
    replacement = tmp_path / "new.config"
    replacement.write_text(config_text(three=three))
    replacement.rename(file)
    wait_until(lambda: running.server.core.model_names == ("three",))
    assert status_of(running.predict, 2.0).startswith("NOT_FOUND")


def test_a_config_file_can_be_put_right_while_the_start_waits(tmp_path, half_plus_two, caplog):
    file = tmp_path / "models.config"
    file.write_text(config_text(default=half_plus_two, missing=tmp_path / "missing", other=tmp_path / "missing"))
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, model_config_file=str(file), **QUICKLY)
        wait_until(lambda: caplog.text.count("could not find base path") == 2)
        assert not starting.done()
        file.write_text(config_text(default=half_plus_two, missing=half_plus_two))
        running = starting.result(60)
    assert running.predict(2.0, model="missing") == [3.0]
    running.stop()


def test_a_reload_that_waits_ends_in_time_and_stops_nobody(start_server, half_plus_two, tmp_path):
    running = start_server(grpc_max_threads=4)
    missing = config(default=half_plus_two, missing=tmp_path / "missing")
    reload = running.models.HandleReloadConfigRequest
    waiting = [reload.future(missing) for _ in range(3)]
    wait_until(lambda: sum(call.done() for call in waiting) == 2)
    assert running.predict(2.0) == [3.0]
    assert [call.code().name for call in waiting if call.done()] == ["ABORTED"] * 2
    with pytest.raises(StatusError, match="DEADLINE_EXCEEDED"):
        running.server.core.reload(missing.config, timeout=0.1)
    wait_until(lambda: all(call.done() for call in waiting))
    assert status_of(reload, missing, timeout=0.1).startswith("DEADLINE_EXCEEDED")
    reload(config(default=half_plus_two, missing=half_plus_two))
    assert running.predict(2.0, model="missing") == [3.0]


def test_a_reload_that_waits_does_not_delay_the_stop(half_plus_two, tmp_path, monkeypatch):
    waits, check = threading.Event(), ServerCore._check_wait

    def checked(core, generation, deadline):
        waits.set()
        return check(core, generation, deadline)

    monkeypatch.setattr(ServerCore, "_check_wait", checked)
    running = start(model_base_path=str(half_plus_two))
    call = running.models.HandleReloadConfigRequest.future(config(m=tmp_path / "missing"))
    assert waits.wait(60)
    running.server.stop(grace=3600)
    running.channel.close()
    assert call.code().name in ("UNAVAILABLE", "CANCELLED")
