"""Versions on disk: policies, hot swaps, broken versions, references, retries."""

import contextlib
import logging
import os
import threading

import grpc
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import get_model_status_pb2

from serving.model_server.status import StatusError
from serving.model_server.versions import source
from serving.model_server.versions.manager import AVAILABLE, END, UNLOADING, Manager
from serving.model_server.versions.saved_model import SavedModel
from serving.model_server.versions.source import StoragePathSource, aspired_versions, list_versions
from serving.wire.protos import ModelConfig
from tests.serving.model_server.conftest import wait_until
from tests.serving.model_server.models import export_half_plus_two


def make_versions(base, *names):
    for name in names:
        (base / name).mkdir(parents=True)


def aspired(base, policy=""):
    """The versions that a model's policy, as text, wants."""
    text = f'name: "m" base_path: "{base}" model_version_policy {{ {policy} }}'
    return sorted(aspired_versions(text_format.Parse(text, ModelConfig())))


def test_which_folders_are_versions(tmp_path, caplog):
    make_versions(tmp_path, "1", "007", "00000123", "v2", "3.0", "-4", "٣", "9" * 25, "123")
    versions = list_versions(str(tmp_path))
    assert sorted(versions) == [1, 7, 123]
    assert versions[123] == str(tmp_path / "123")
    assert "Duplicate version" in caplog.text


def test_policies(tmp_path, caplog):
    make_versions(tmp_path, "1", "2", "10")
    for policy, numbers in (
        ("", [10]), ("latest { num_versions: 2 }", [2, 10]), ("latest { num_versions: 9 }", [1, 2, 10]),
        ("all {}", [1, 2, 10]), ("specific { versions: [1, 2] }", [1, 2]), ("specific { versions: [1, 5] }", [1])
    ):  # fmt: skip
        assert aspired(tmp_path, policy) == numbers
    assert "Version 5" in caplog.text
    make_versions(tmp_path / "empty", "x")
    assert aspired(tmp_path / "empty") == []
    with pytest.raises(FileNotFoundError):
        aspired(tmp_path / "missing")


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
            self.held[number].wait(60)
        if number in self.broken:
            raise StatusError(grpc.StatusCode.DATA_LOSS, "broken")
        self.loaded[number] = FakeServable()
        return self.loaded[number]


@pytest.fixture
def loader():
    return Loader()


@pytest.fixture
def make_manager(loader):
    with contextlib.ExitStack() as stack:

        def make(retries=0, pause=3600):
            manager = Manager(loader, max_load_retries=retries, retry_interval=pause)
            stack.callback(manager.close)
            return manager

        yield make
        for event in loader.held.values():
            event.set()


@pytest.fixture
def empty(make_manager):
    return make_manager()


@pytest.fixture
def manager(empty):
    """With version 1 available."""
    empty.aspire("m", versions(1))
    assert empty.wait_until_available(["m"]) == []
    return empty


def states(manager):
    return [(number, state) for number, state, _ in manager.states("m")]


def versions(*numbers):
    return {number: f"/{number}" for number in numbers}


def test_new_is_available_before_old_goes_and_the_older_comes_back(manager, loader):
    loader.held[2] = threading.Event()
    manager.aspire("m", versions(2))
    wait_until(lambda: loader.attempts == [1, 2])
    assert manager.available("m") == [1]
    loader.held[2].set()
    wait_until(lambda: states(manager) == [(2, AVAILABLE), (1, END)])
    assert loader.loaded[1].closed.is_set()
    manager.aspire("m", versions(1))
    wait_until(lambda: states(manager) == [(2, END), (1, AVAILABLE)])


def test_broken_version_never_displaces_a_good_one(manager, loader):
    loader.broken.add(2)
    manager.aspire("m", versions(2))
    wait_until(lambda: dict(states(manager)).get(2) == END)
    for _ in range(3):
        manager.aspire("m", versions(2))
    assert states(manager) == [(2, END), (1, AVAILABLE)]
    assert manager.states("m")[0][2].message == "broken"
    assert loader.attempts == [1, 2], "a failed version must not be tried at every poll"
    loader.broken.clear()
    # Taken away and put back, it is tried again.
    manager.aspire("m", versions(1))
    manager.aspire("m", versions(2))
    wait_until(lambda: manager.available("m") == [2])


@pytest.mark.parametrize("good_is_first", [False, True])
def test_at_start_the_newest_version_that_is_decided_decides(empty, loader, good_is_first):
    """As the real server has it; so what starts here starts there."""
    loader.broken.add(2)
    last = 2 if good_is_first else 1
    loader.held[last] = threading.Event()
    empty.aspire("m", versions(1, 2))
    failed = empty.wait_until_available(["m"])
    assert [version.number for version in failed] == ([] if good_is_first else [2])
    loader.held[last].set()
    # A second model that is slower: by then the first one's newest has failed.
    wait_until(lambda: states(empty) == [(2, END), (1, AVAILABLE)])
    assert [version.number for version in empty.wait_until_available(["m"])] == [2]


def test_a_version_that_failed_is_tried_again_from_another_folder(empty, loader):
    loader.broken.add(1)
    empty.aspire("m", {1: "/wrong"})
    assert [version.path for version in empty.wait_until_available(["m"])] == ["/wrong"]
    loader.broken.clear()
    empty.aspire("m", {1: "/right"})
    assert empty.wait_until_available(["m"]) == []
    assert empty.available("m") == [1]


def test_one_model_that_cannot_be_looked_for_hides_no_other(tmp_path):
    make_versions(tmp_path, "1")
    found = {}
    source = StoragePathSource(found.__setitem__, poll_wait_seconds=0)
    source.configure({
        name: ModelConfig(name=name, base_path=path)
        for name, path in {"nul": "/a\0b", "long": "/" + "a" * 5000, "good": str(tmp_path)}.items()
    })  # fmt: skip
    assert list(found) == ["good"]


def test_no_wanted_version_unloads_everything(manager):
    manager.aspire("m", versions(1, 2))
    wait_until(lambda: len(manager.available("m")) == 2)
    manager.aspire("m", {})
    wait_until(lambda: states(manager) == [(2, END), (1, END)])
    with pytest.raises(StatusError, match=r"Latest\(m\)"), manager.use("m"):
        pass


def test_a_version_in_use_is_not_closed(manager, loader):
    with manager.use("m") as held:
        manager.aspire("m", versions(2))
        wait_until(lambda: manager.available("m") == [2])
        assert dict(states(manager))[1] == UNLOADING
        assert not loader.loaded[1].closed.wait(0.1)
        assert held.number == 1
        with manager.use("m") as newer:
            assert newer.number == 2
    assert loader.loaded[1].closed.wait(60)


def test_version_wanted_again_while_it_unloads(manager, loader):
    with manager.use("m"):
        manager.aspire("m", {})
        manager.aspire("m", versions(1))
        assert manager.available("m") == []
    wait_until(lambda: manager.available("m") == [1])
    assert loader.attempts == [1, 1]


def test_a_load_is_tried_again_as_often_as_the_flag_says(make_manager, loader):
    loader.broken.add(1)
    manager = make_manager(retries=2, pause=0.01)
    manager.aspire("m", versions(1))
    (failed,) = manager.wait_until_available(["m"])
    assert str(failed) == "{name: m version: 1}"
    assert loader.attempts == [1, 1, 1]


def test_a_version_that_waits_for_its_retry_holds_up_no_other_and_takes_another_folder(make_manager, loader):
    loader.broken.add(1)
    manager = make_manager(retries=5)
    manager.end_initial_load()
    manager.aspire("m", {1: "/wrong"})
    wait_until(lambda: loader.attempts == [1])
    manager.aspire("other", versions(2))
    assert manager.wait_until_available(["other"]) == []
    loader.broken.clear()
    manager.aspire("m", {1: "/right"})
    wait_until(lambda: manager.available("m") == [1])


def test_retries_end_when_the_version_is_no_longer_wanted(make_manager, loader):
    loader.broken.add(1)
    manager = make_manager(retries=5)
    manager.aspire("m", versions(1))
    wait_until(lambda: loader.attempts == [1])
    manager.aspire("m", versions(2))
    wait_until(lambda: states(manager) == [(2, AVAILABLE), (1, END)])


def test_close_waits_for_requests(manager, loader):
    closing = threading.Thread(target=manager.close)
    with manager.use("m"):
        closing.start()
        assert not loader.loaded[1].closed.wait(0.1)
    closing.join(60)
    assert loader.loaded[1].closed.is_set()


def test_a_broken_version_on_disk_unloads_nothing_and_its_status_says_why(start_server, tmp_path):
    base = tmp_path / "m"
    export_half_plus_two(base / "1")
    running = start_server(model_base_path=base)
    (base / "2").mkdir()
    (base / "2" / "saved_model.pb").write_bytes(b"\xff not a model")
    wait_until(lambda: running.server.core.states("default")[0][:2] == (2, END))
    newest = running.models.GetModelStatus(STATUS).model_version_status[0]
    assert (newest.version, newest.state) == (2, newest.END)
    assert newest.status.error_code != 0 and newest.status.error_message
    assert running.predict(2.0) == [3.0]


STATUS = text_format.Parse('model_spec { name: "default" }', get_model_status_pb2.GetModelStatusRequest())


@pytest.mark.parametrize(
    "file, advice",
    [
        ("saved_model.pb", "It is a version itself: move its files into a subfolder '1'"),
        ("model.keras", "It is a model that is not exported: 'python -m serving.export --model="),
        ("model.safetensors", "It is a model that is not exported"),
        ("other.txt", "Did you forget to name your leaf directory as a number (eg. '/1/')?"),
    ],
)
def test_a_folder_without_versions_is_explained_once(tmp_path, caplog, monkeypatch, file, advice):
    (tmp_path / file).write_text("")
    found, models = [], {"m": ModelConfig(name="m", base_path=str(tmp_path))}
    watched = source.StoragePathSource(lambda name, versions: found.append(versions), 0)
    for _ in range(3):
        watched.configure(models)
    assert found == [{}] * 3
    assert caplog.text.count("No versions of servable m found") == 1 and advice in caplog.text
    monkeypatch.setattr(source, "_REPEAT_SECONDS", 0.0)
    watched.configure(models)
    assert caplog.text.count("No versions of servable m found") == 2
    (tmp_path / file).unlink()
    tmp_path.rmdir()
    watched.configure(models)
    assert "could not find base path" in caplog.text and caplog.records[-1].levelno == logging.ERROR
    assert found == [{}] * 4, "a share that is away for a moment unloads nothing"


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
