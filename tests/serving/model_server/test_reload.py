"""Models that come and go, and labels, while the server runs: by ReloadConfig, and by its config file."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import wait_for


def config(*models, **extra):
    request = model_management_pb2.ReloadConfigRequest(**extra)
    for name, base_path, platform in models:
        request.config.model_config_list.config.add(name=name, base_path=str(base_path), model_platform=platform)
    return request


def test_reload_adds_and_removes_models(start_server, half_plus_two, build, tmp_path, error_of):
    build.half_plus_two(tmp_path / "three" / "1", bias=3.0)
    running = start_server(model_base_path=str(half_plus_two))
    both = config(("default", half_plus_two, "tensorflow"), ("three", tmp_path / "three", "tensorflow"))
    running.predict(2.0)
    both.metric_names.append("/tensorflow/serving/request_count")
    response = running.models.HandleReloadConfigRequest(both)
    assert response.status.error_code == 0
    assert response.metric[0].name == "/tensorflow/serving/request_count"
    assert running.predict(2.0, model="three") == [4.0]
    running.models.HandleReloadConfigRequest(config(("three", tmp_path / "three", "tensorflow")))
    assert running.predict(2.0, model="three") == [4.0]
    assert error_of(running.predict, 2.0)[0] == "NOT_FOUND"


def test_reload_refusals(start_server, half_plus_two, tmp_path, error_of):
    running = start_server(model_base_path=str(half_plus_two))
    reload = running.models.HandleReloadConfigRequest
    assert error_of(reload, model_management_pb2.ReloadConfigRequest()) == (
        "INVALID_ARGUMENT",
        "ServerModelConfig type not supported by HandleReloadConfigRequest. "
        "Only ModelConfigList is currently supported",
    )
    assert error_of(reload, config(("m", "relative", "tensorflow"))) == (
        "INVALID_ARGUMENT",
        "Expected model m to have an absolute path or URI; got base_path()=relative",
    )
    assert error_of(reload, config(("m", "/a", "other"))) == (
        "INVALID_ARGUMENT",
        "Model m requests unsupported platform other",
    )
    code, message = error_of(reload, config(("m", "/a", "tensorflow"), ("m", "/b", "tensorflow")))
    assert (code, "multiple times" in message) == ("INVALID_ARGUMENT", True)
    code, message = error_of(reload, config(("default", half_plus_two, "other")))
    assert (code, message.startswith("Illegal to change a model's platform")) == ("INVALID_ARGUMENT", True)
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "saved_model.pb").write_bytes(b"no model")
    both = config(("default", half_plus_two, "tensorflow"), ("bad", tmp_path / "bad", "tensorflow"))
    code, message = error_of(reload, both)
    assert code == "UNKNOWN"
    assert message.startswith("1 model(s) did not become available: {{{name: bad version: 1} due to error:")
    assert running.predict(2.0) == [3.0]


def test_labels(start_server, build, tmp_path, error_of):
    base = tmp_path / "m"
    build.half_plus_two(base / "1", bias=2.0)
    build.half_plus_two(base / "2", bias=3.0)
    running = start_server(model_base_path=str(base))
    request = config(("default", base, "tensorflow"))
    model = request.config.model_config_list.config[0]
    model.model_version_policy.all.SetInParent()
    model.version_labels["stable"] = 1
    running.models.HandleReloadConfigRequest(request)
    assert running.predict(2.0, label="stable") == [3.0]
    assert running.predict(2.0) == [4.0]
    model.version_labels["canary"] = 9
    assert error_of(running.models.HandleReloadConfigRequest, request) == (
        "FAILED_PRECONDITION",
        "Request to assign label to version 9 of model default, which is not currently available for inference",
    )
    assert running.predict(2.0, label="stable") == [3.0]
    answer = running.http("POST", "/v1/models/default/labels/stable:predict", {"inputs": 2.0})
    assert answer[1] == {"outputs": 3.0}


def test_labels_at_start_need_the_flag(start_server, build, tmp_path, half_plus_two):
    list_ = model_server_config_pb2.ModelServerConfig()
    model = list_.model_config_list.config.add(
        name="default", base_path=str(half_plus_two), model_platform="tensorflow"
    )
    model.version_labels["stable"] = 123
    file = tmp_path / "models.config"
    file.write_text(str(list_))
    with pytest.raises(StatusError, match="not currently available for inference"):
        start_server(model_config_file=str(file))
    running = start_server(model_config_file=str(file), allow_version_labels_for_unavailable_models=True)
    assert running.predict(2.0, label="stable") == [3.0]


def test_config_file_is_read_again(start_server, build, tmp_path, half_plus_two):
    build.half_plus_two(tmp_path / "three" / "1", bias=3.0)
    entry = 'config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}'
    file = tmp_path / "models.config"
    file.write_text("model_config_list {" + entry.format("default", half_plus_two) + "}")
    running = start_server(model_config_file=str(file), model_config_file_poll_wait_seconds=1)
    file.write_text("not a config")
    replacement = tmp_path / "new.config"
    replacement.write_text("model_config_list {" + entry.format("three", tmp_path / "three") + "}")
    replacement.rename(file)
    assert wait_for(lambda: running.predict(2.0, model="three") == [4.0])


def config_text(**base_paths):
    entry = 'config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}'
    return "model_config_list {" + " ".join(entry.format(*pair) for pair in base_paths.items()) + "}"


def test_a_config_file_that_goes_wrong_takes_nothing_away(start_server, build, tmp_path, half_plus_two, caplog):
    build.half_plus_two(tmp_path / "three" / "1", bias=3.0)
    file = tmp_path / "models.config"
    file.write_text(config_text(default=half_plus_two))
    running = start_server(model_config_file=str(file), model_config_file_poll_wait_seconds=1)
    file.write_text("  # nothing yet\n")
    assert wait_for(lambda: "FAILED_PRECONDITION: Cannot transition to requested config." in caplog.text)
    assert running.predict(2.0) == [3.0]
    file.write_text(config_text(default=half_plus_two, three=tmp_path / "there"))
    assert wait_for(lambda: "could not find base path" in caplog.text)
    assert running.predict(2.0) == [3.0]
    file.write_text(config_text(default=half_plus_two, three=tmp_path / "three"))
    assert wait_for(lambda: running.predict(2.0, model="three") == [4.0])
    label = 'name: "three" version_labels { key: "stable" value: 1 }'
    file.write_text(config_text(default=half_plus_two, three=tmp_path / "three").replace('name: "three"', label))
    assert wait_for(lambda: running.predict(2.0, model="three", label="stable") == [4.0])


def test_a_config_file_can_be_put_right_while_the_start_waits(build, tmp_path, half_plus_two):
    file = tmp_path / "models.config"
    file.write_text(config_text(default=half_plus_two, missing=tmp_path / "missing", other=tmp_path / "missing"))
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(build.start, model_config_file=str(file), model_config_file_poll_wait_seconds=1)
        time.sleep(0.5)
        assert not starting.done()
        file.write_text(config_text(default=half_plus_two, missing=half_plus_two))
        running = starting.result(20)
    assert running.predict(2.0, model="missing") == [3.0]
    running.stop()


def test_a_reload_that_waits_ends_in_time_and_stops_nobody(start_server, half_plus_two, tmp_path, error_of):
    running = start_server(model_base_path=str(half_plus_two), grpc_max_threads=4)
    missing = config(("default", half_plus_two, "tensorflow"), ("missing", tmp_path / "missing", "tensorflow"))
    reload = running.models.HandleReloadConfigRequest
    waiting = [reload.future(missing) for _ in range(3)]
    assert wait_for(lambda: sum(call.done() for call in waiting) == 2)
    assert running.predict(2.0) == [3.0]
    for call in waiting:
        if call.done():
            assert call.code().name == "ABORTED"
    begin = time.monotonic()
    with pytest.raises(StatusError, match="DEADLINE_EXCEEDED"):
        running.server.core.reload(missing.config, timeout=0.3)
    assert time.monotonic() - begin >= 0.3
    assert all(wait_for(call.done) for call in waiting)
    assert error_of(reload, missing, timeout=0.3)[0] == "DEADLINE_EXCEEDED"
    reload(config(("default", half_plus_two, "tensorflow"), ("missing", half_plus_two, "tensorflow")))
    assert running.predict(2.0, model="missing") == [3.0]


def test_a_reload_that_waits_does_not_delay_the_stop(build, half_plus_two, tmp_path):
    running = build.start(model_base_path=str(half_plus_two))
    call = running.models.HandleReloadConfigRequest.future(config(("m", tmp_path / "missing", "tensorflow")))
    assert wait_for(lambda: "m" in running.server.core._models)
    running.server.stop(grace=30)
    running.channel.close()
    assert call.code().name in ("UNAVAILABLE", "CANCELLED")


def test_nul_in_a_base_path_is_refused(start_server, half_plus_two, error_of):
    running = start_server(model_base_path=str(half_plus_two))
    request = config(("a", "/models\0/a", "tensorflow"), ("default", half_plus_two, "tensorflow"))
    assert error_of(running.models.HandleReloadConfigRequest, request) == (
        "INVALID_ARGUMENT",
        r"The base path of model a holds a NUL character: '/models\x00/a'",
    )
