"""Versions of a model that go, are damaged, or replace one another."""

import random
import shutil
import time

import pytest

from tests.faults.stage import ask, export, load, state_of, wait_for

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]


def test_versions_deleted_while_they_load_disturb_no_request(stage):
    base, chance = stage.folder / "m", random.Random(1)
    export(base, 1)
    server = stage.server(base=base)
    with load(server.ports) as counts:
        for version in range(2, 22):
            path = export(base, version)
            time.sleep(chance.uniform(0, 1.2))
            shutil.rmtree(path)
        export(base, 30)
        wait_for(lambda: state_of(server, 30) == "AVAILABLE", "the whole version is loaded")
    counts.check_all_answered()


def test_damaged_versions_disturb_no_request_and_the_next_whole_one_is_loaded(stage):
    base = stage.folder / "m"
    export(base, 1)
    server = stage.server(base=base)
    with load(server.ports) as counts:
        for version, damage in ((2, _damaged), (3, _cut), (4, _emptied)):
            path = export(stage.folder / "made", version)
            damage(path)
            path.rename(base / str(version))
            if damage is not _emptied:
                # A folder without a model is none of a version that ends: it may still be copied.
                wait_for(lambda: state_of(server, version) == "END", f"version {version} is given up")  # noqa: B023
        export(base, 5)
        wait_for(lambda: state_of(server, 5) == "AVAILABLE", "the whole version is loaded")
    counts.check_all_answered()


def _damaged(path):
    content = bytearray((path / "saved_model.pb").read_bytes())
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    (path / "saved_model.pb").write_bytes(content)


def _cut(path):
    content = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(content[: len(content) // 2])


def _emptied(path):
    shutil.rmtree(path)
    path.mkdir()


LONG = pytest.param(80, marks=[pytest.mark.slow("soak"), pytest.mark.timeout(3000)])


@pytest.mark.parametrize("swaps", [10, LONG])
def test_through_swaps_each_request_is_answered_by_one_version_and_memory_and_threads_stay_level(stage, swaps):
    base, states = stage.folder / "m", []
    export(base, 1)
    server, _, ports = stage.server_and_gateway(base)
    with load(ports) as counts:
        for version in range(2, 2 + swaps):
            export(base, version)
            wait_for(lambda: state_of(server, version) == "AVAILABLE", f"version {version} is loaded")  # noqa: B023
            shutil.rmtree(base / str(version - 1))
            assert ask(server.rest, "/v1/models/m:predict", b"{" + random.randbytes(99))[0] == 400
            states.append(server.memory_and_threads())
    counts.check_all_answered()
    memory, threads = zip(*states)
    assert max(memory[swaps // 2 :]) < 1.15 * max(memory[: swaps // 2]), memory
    assert max(threads[swaps // 2 :]) <= max(threads[: swaps // 2]) + 2, threads
