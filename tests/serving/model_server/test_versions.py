"""Versions on disk: policies, hot swaps, broken versions, references, retries."""

import shutil
import threading
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server import manager as manager_module
from serving.model_server.manager import AVAILABLE, END, Manager
from serving.model_server.source import StoragePathSource, aspired_versions, list_versions
from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import wait_for


def make_versions(base, *names):
    for name in names:
        (base / name).mkdir(parents=True)


def policy(base, text=""):
    model = model_server_config_pb2.ModelConfig(name="m", base_path=str(base))
    if text == "all":
        model.model_version_policy.all.SetInParent()
    elif text.startswith("latest"):
        model.model_version_policy.latest.num_versions = int(text.split()[1])
    elif text:
        model.model_version_policy.specific.versions.extend(map(int, text.split()[1:]))
    return sorted(aspired_versions(model))


def test_which_folders_are_versions(tmp_path, caplog):
    make_versions(tmp_path, "1", "007", "00000123", "v2", "3.0", "-4", "٣", "9" * 25, "123")
    versions = list_versions(str(tmp_path))
    assert sorted(versions) == [1, 7, 123]
    assert versions[123] == str(tmp_path / "123")
    assert "Duplicate version" in caplog.text


def test_policies(tmp_path, caplog):
    make_versions(tmp_path, "1", "2", "10")
    assert policy(tmp_path) == [10]
    assert policy(tmp_path, "latest 2") == [2, 10]
    assert policy(tmp_path, "latest 9") == [1, 2, 10]
    assert policy(tmp_path, "all") == [1, 2, 10]
    assert policy(tmp_path, "specific 1 2") == [1, 2]
    assert policy(tmp_path, "specific 1 5") == [1]
    assert "Version 5" in caplog.text
    make_versions(tmp_path / "empty", "x")
    assert policy(tmp_path / "empty") == []
    assert "Did you forget to name your leaf directory as a number" in caplog.text
    with pytest.raises(FileNotFoundError):
        policy(tmp_path / "missing")


class FakeServable:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


class Loader:
    """Loads as told: versions in `broken` fail, those in `held` wait."""

    def __init__(self):
        self.broken, self.held, self.attempts, self.loaded = set(), {}, [], {}

    def __call__(self, name, number, path):
        self.attempts.append(number)
        if number in self.held:
            self.held[number].wait(10)
        if number in self.broken:
            raise StatusError(grpc.StatusCode.DATA_LOSS, "broken")
        self.loaded[number] = FakeServable()
        return self.loaded[number]


@pytest.fixture
def loader():
    return Loader()


@pytest.fixture
def manager(loader):
    result = Manager(loader, max_load_retries=0, retry_interval=0.01)
    yield result
    for event in loader.held.values():
        event.set()
    result.close()


def states(manager):
    return [(number, state) for number, state, _ in manager.states("m")]


def versions(*numbers):
    return {number: f"/{number}" for number in numbers}


def test_new_is_available_before_old_goes(manager, loader):
    manager.aspire("m", versions(1))
    assert manager.wait_until_available(["m"]) == []
    loader.held[2] = threading.Event()
    manager.aspire("m", versions(2))
    assert wait_for(lambda: loader.attempts == [1, 2])
    assert manager.available("m") == [1]
    loader.held[2].set()
    assert wait_for(lambda: states(manager) == [(2, AVAILABLE), (1, END)])
    assert loader.loaded[1].closed.is_set()


def test_broken_version_never_displaces_a_good_one(manager, loader):
    manager.aspire("m", versions(1))
    manager.wait_until_available(["m"])
    loader.broken.add(2)
    manager.aspire("m", versions(2))
    assert wait_for(lambda: dict(states(manager)).get(2) == END)
    for _ in range(3):
        manager.aspire("m", versions(2))
    assert states(manager) == [(2, END), (1, AVAILABLE)]
    assert manager.states("m")[0][2].message == "broken"
    assert loader.attempts == [1, 2], "a failed version must not be tried at every poll"
    loader.broken.clear()
    manager.aspire("m", versions(1))
    manager.aspire("m", versions(2))
    assert wait_for(lambda: manager.available("m") == [2]), "taken away and put back, it is tried again"


@pytest.mark.parametrize("good_is_first", [False, True])
def test_at_start_the_newest_version_that_is_decided_decides(manager, loader, good_is_first):
    """As the real server has it; so what starts here starts there."""
    loader.broken.add(2)
    last = 2 if good_is_first else 1
    loader.held[last] = threading.Event()
    manager.aspire("m", versions(1, 2))
    failed = manager.wait_until_available(["m"])
    assert [version.number for version in failed] == ([] if good_is_first else [2])
    loader.held[last].set()
    # A second model that is slower: by then the first one's newest has failed.
    assert wait_for(lambda: states(manager) == [(2, END), (1, AVAILABLE)])
    assert [version.number for version in manager.wait_until_available(["m"])] == [2]


def test_a_version_that_failed_is_tried_again_from_another_folder(manager, loader):
    loader.broken.add(1)
    manager.aspire("m", {1: "/wrong"})
    assert [version.path for version in manager.wait_until_available(["m"])] == ["/wrong"]
    loader.broken.clear()
    manager.aspire("m", {1: "/right"})
    assert manager.wait_until_available(["m"]) == []
    assert manager.available("m") == [1]


def test_one_model_that_cannot_be_looked_for_hides_no_other(tmp_path):
    make_versions(tmp_path, "1")
    found = {}
    source = StoragePathSource(found.__setitem__, poll_wait_seconds=0)
    source.configure({
        name: model_server_config_pb2.ModelConfig(name=name, base_path=path)
        for name, path in {"nul": "/a\0b", "long": "/" + "a" * 5000, "good": str(tmp_path)}.items()
    })  # fmt: skip
    assert list(found) == ["good"]


def test_removing_the_newest_brings_the_older_back(manager, loader):
    manager.aspire("m", versions(1))
    manager.wait_until_available(["m"])
    manager.aspire("m", versions(2))
    assert wait_for(lambda: states(manager) == [(2, AVAILABLE), (1, END)])
    manager.aspire("m", versions(1))
    assert wait_for(lambda: states(manager) == [(2, END), (1, AVAILABLE)])


def test_no_wanted_version_unloads_everything(manager):
    manager.aspire("m", versions(1, 2))
    manager.wait_until_available(["m"])
    assert wait_for(lambda: len(manager.available("m")) == 2)
    manager.aspire("m", {})
    assert wait_for(lambda: states(manager) == [(2, END), (1, END)])
    with pytest.raises(StatusError, match=r"Latest\(m\)"), manager.use("m"):
        pass


def test_a_version_in_use_is_not_closed(manager, loader):
    manager.aspire("m", versions(1))
    manager.wait_until_available(["m"])
    with manager.use("m") as held:
        manager.aspire("m", versions(2))
        assert wait_for(lambda: manager.available("m") == [2])
        assert dict(states(manager))[1] == manager_module.UNLOADING
        assert not loader.loaded[1].closed.wait(0.1)
        assert held.number == 1
        with manager.use("m") as newer:
            assert newer.number == 2
    assert loader.loaded[1].closed.wait(5)


def test_version_wanted_again_while_it_unloads(manager, loader):
    manager.aspire("m", versions(1))
    manager.wait_until_available(["m"])
    with manager.use("m"):
        manager.aspire("m", {})
        manager.aspire("m", versions(1))
        assert manager.available("m") == []
    assert wait_for(lambda: manager.available("m") == [1])
    assert loader.attempts == [1, 1]


def test_retries():
    loader = Loader()
    loader.broken.add(1)
    manager = Manager(loader, max_load_retries=2, retry_interval=0.01)
    manager.aspire("m", versions(1))
    (failed,) = manager.wait_until_available(["m"])
    assert str(failed) == "{name: m version: 1}"
    assert loader.attempts == [1, 1, 1]
    manager.close()


def test_a_version_that_waits_for_its_retry_holds_up_no_other_and_takes_another_folder():
    loader = Loader()
    loader.broken.add(1)
    manager = Manager(loader, max_load_retries=5, retry_interval=60)
    manager.end_initial_load()
    manager.aspire("m", {1: "/wrong"})
    assert wait_for(lambda: loader.attempts == [1])
    manager.aspire("other", versions(2))
    assert manager.wait_until_available(["other"]) == []
    loader.broken.clear()
    manager.aspire("m", {1: "/right"})
    assert wait_for(lambda: manager.available("m") == [1])
    manager.close()


def test_retries_end_when_the_version_is_no_longer_wanted():
    loader = Loader()
    loader.broken.add(1)
    manager = Manager(loader, max_load_retries=5, retry_interval=60)
    manager.aspire("m", versions(1))
    assert wait_for(lambda: loader.attempts == [1])
    manager.aspire("m", versions(2))
    assert wait_for(lambda: states(manager) == [(2, AVAILABLE), (1, END)])
    manager.close()


def test_close_waits_for_requests(loader):
    manager = Manager(loader, max_load_retries=0)
    manager.aspire("m", versions(1))
    manager.wait_until_available(["m"])
    closing = threading.Thread(target=manager.close)
    with manager.use("m"):
        closing.start()
        assert not loader.loaded[1].closed.wait(0.1)
    closing.join(5)
    assert loader.loaded[1].closed.is_set()


def publish(build, base, number, bias):
    """As a careful exporter does: written beside, then renamed, so that no half version is ever seen."""
    build.half_plus_two(base / f"tmp-{number}", bias).rename(base / str(number))


def test_no_request_fails_during_swaps(start_server, build, tmp_path):
    base = tmp_path / "m"
    publish(build, base, 1, 1.0)
    running = start_server(model_base_path=str(base))
    stopped, answers, errors = threading.Event(), set(), []

    def hammer():
        while not stopped.is_set():
            try:
                answers.update(running.predict(0.0))
            except grpc.RpcError as error:
                errors.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in (2, 3):
        publish(build, base, number, float(number))
        assert wait_for(lambda number=number: running.predict(0.0) == [float(number)])
    shutil.rmtree(base / "3")
    assert wait_for(lambda: running.predict(0.0) == [2.0])
    stopped.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert answers == {1.0, 2.0, 3.0}


def test_broken_version_on_disk(start_server, build, tmp_path):
    base = tmp_path / "m"
    publish(build, base, 1, 2.0)
    running = start_server(model_base_path=str(base))
    (base / "2").mkdir()
    (base / "2" / "saved_model.pb").write_bytes(b"\xff not a model")
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "default"

    def newest():
        return running.models.GetModelStatus(request).model_version_status[0]

    assert wait_for(lambda: newest().version == 2 and newest().state == newest().END)
    assert newest().status.error_code != 0
    assert newest().status.error_message
    assert running.predict(2.0) == [3.0]


def test_base_path_that_goes_away_unloads_nothing(start_server, build, tmp_path):
    base = tmp_path / "m"
    publish(build, base, 1, 2.0)
    running = start_server(model_base_path=str(base))
    base.rename(tmp_path / "away")
    time.sleep(1.5)
    assert running.predict(2.0) == [3.0]
    (tmp_path / "away").rename(base)
    shutil.rmtree(base / "1")
    assert wait_for(lambda: running.server.core.states("default")[0][1] == END)


def test_all_versions_and_specific_requests(start_server, build, tmp_path):
    base = tmp_path / "m"
    publish(build, base, 1, 1.0)
    publish(build, base, 2, 2.0)
    file = tmp_path / "models.config"
    file.write_text(
        f'model_config_list {{ config {{ name: "default" base_path: "{base}" model_platform: "tensorflow" '
        "model_version_policy { all {} } } }"
    )
    running = start_server(model_config_file=str(file))
    # The start waits for one of them.
    assert wait_for(lambda: [state for _, state, _ in running.server.core.states("default")] == [AVAILABLE] * 2)
    assert running.predict(0.0, version=1) == [1.0]
    assert running.predict(0.0, version=2) == [2.0]
    assert running.predict(0.0) == [2.0]


def test_start_fails_when_a_newest_version_does_not_load(start_server, build, tmp_path):
    """Whatever older one is there; a running server goes on with it (test_broken_version_on_disk)."""
    build.half_plus_two(tmp_path / "m" / "1")
    (tmp_path / "m" / "2").mkdir(parents=True)
    with pytest.raises(StatusError) as caught:
        start_server(model_base_path=str(tmp_path / "m"))
    assert str(caught.value).startswith(
        "UNKNOWN: 1 servable(s) did not become available: {{{name: default version: 2} due to error: NOT_FOUND: "
    )
