"""Versions of a model that go, are damaged, or replace one another."""

import random
import shutil
import time

from scripts.faults.rows import row
from scripts.faults.stage import Stage, export, load, state_of, wait_for


@row(
    "deleted-while-loading",
    "a new version is deleted while it loads, twenty times, under load",
    "the old one answers all; the next whole one is loaded",
)
def deleted_while_loading(stage: Stage) -> str:
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
    return counts.all_answered()


@row(
    "corrupt-version",
    "versions with a damaged graph, cut variables, or no file, under load",
    "the old one answers all; status says why; the next whole one is loaded",
)
def corrupt_version(stage: Stage) -> str:
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
    return counts.all_answered()


def _damaged(path) -> None:
    content = bytearray((path / "saved_model.pb").read_bytes())
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    (path / "saved_model.pb").write_bytes(content)


def _cut(path) -> None:
    content = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(content[: len(content) // 2])


def _emptied(path) -> None:
    shutil.rmtree(path)
    path.mkdir()


@row("swaps", "ten swaps of versions under load through all ports", "every request answered by one version")
def swaps(stage: Stage) -> str:
    base = stage.folder / "m"
    export(base, 1)
    server, _, ports = stage.server_and_gateway(base)
    with load(ports) as counts:
        for version in range(2, 12):
            export(base, version)
            wait_for(lambda: state_of(server, version) == "AVAILABLE", f"version {version} is loaded")  # noqa: B023
            shutil.rmtree(base / str(version - 1))
    return counts.all_answered()
