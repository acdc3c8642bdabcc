"""Mixed load through the gateway for a long time, while versions of the model come and go behind it.

    python -m benchmarks.gateway_soak --model_base_path=$PWD/models/sst2 --text_file=lines.txt --minutes=30

Clients ask single texts, lists, pieces and what is wrong; another version of the same model replaces the one that
answers every `--swap_s`. Printed: answers by status, those that should have been others, and the gateway's memory.
"""

import collections
import json
import random
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from benchmarks import servers
from benchmarks.machine import machine_line
from benchmarks.memory import memory_mib
from serving.score.models import version_folder
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

_KEPT = 2


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    """The command's flags."""

    model_base_path: str = setting(help="an export by text of a classifier")
    text_file: str = setting(help="texts to ask, one a line")
    minutes: float = setting(30.0, help="how long", above=0)
    clients: int = setting(8, help="requests at once", at_least=1)
    pause_s: float = setting(0.0, help="of each client between two requests", at_least=0)
    swap_s: float = setting(60.0, help="between two versions", above=0)


class Load:
    """Clients that ask until they are stopped, and what they got."""

    def __init__(self, port: int, texts: list[str], pause_s: float):
        self._port, self._texts, self._pause_s = port, texts, pause_s
        self.statuses: collections.Counter = collections.Counter()
        self.wrong: list[str] = []
        self.stop = threading.Event()

    def ask(self, seed: int) -> None:
        """One client's requests, a connection kept open as long as it lasts."""
        chance, http = random.Random(seed), HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self.stop.is_set():
            path, body, expected = self._request(chance)
            try:
                http.request("POST", path, body)
                answer = http.getresponse()
                status, said = answer.status, answer.read()
            except (OSError, HTTPException) as error:
                status, said = type(error).__name__, str(error).encode()
                http.close()
            self.statuses[status] += 1
            if status != expected:
                self.wrong.append(f"{path}: {status} in place of {expected}: {said[:200]!r}")
            self.stop.wait(self._pause_s)

    def _request(self, chance: random.Random) -> tuple[str, bytes, int]:
        kind, text = chance.random(), chance.choice(self._texts)
        if kind < 0.1:
            return "/predict", b'{"inputs": ["', 400
        if kind < 0.3:
            return "/tokenize", json.dumps({"inputs": text}).encode(), 200
        if kind < 0.4:
            text = chance.choices(self._texts, k=chance.randint(2, 40))
        return "/predict", json.dumps({"inputs": text}).encode(), 200


def main(settings: Settings) -> None:
    print(machine_line())
    texts = [line for line in Path(settings.text_file).read_text("utf-8").splitlines() if line.strip()]
    source = version_folder(settings.model_base_path)
    with tempfile.TemporaryDirectory() as folder:
        _publish(source, Path(folder), 1)
        poll = "--file_system_poll_wait_seconds=1"
        with servers.model_server(folder, poll) as target, servers.gateway(target, "m") as (port, process):
            load = Load(port, texts, settings.pause_s)
            with ThreadPoolExecutor(settings.clients) as pool:
                clients = [pool.submit(load.ask, seed) for seed in range(settings.clients)]
                try:
                    memory = _watch(settings, source, Path(folder), process, load)
                finally:
                    load.stop.set()
                for client in clients:
                    client.result()
            version = servers.info(port)["version"]
    tenth = memory[len(memory) // 10 :]
    print(f"{sum(load.statuses.values()):,} answers: {dict(load.statuses)}; the last by version {version}")
    first, last, most = tenth[0], memory[-1], max(memory)
    print(f"gateway's memory, MB: {first:.1f} after a tenth of the time, {last:.1f} at the end, {most:.1f} at most")
    print(f"{len(load.wrong)} answers should have been others" + "".join(f"\n  {one}" for one in load.wrong[:10]))


def _watch(settings: Settings, source: Path, base: Path, process: int, load: Load) -> list[float]:
    """Publishes versions until the time is over; the gateway's resident memory in MB, every second."""
    begin, memory, version = time.monotonic(), [], 1
    while (passed := time.monotonic() - begin) < settings.minutes * 60:
        memory.append(memory_mib(process=process))
        if passed > version * settings.swap_s:
            version += 1
            _publish(source, base, version)
        if len(memory) % 60 == 0:
            print(
                f"{passed / 60:5.1f} min  {sum(load.statuses.values()):8,} answers  version {version:3}  "
                f"{memory[-1]:.1f} MB  {len(load.wrong)} wrong",
                flush=True,
            )
        time.sleep(1.0)
    return memory


def _publish(source: Path, base: Path, version: int) -> None:
    """A copy as another version, at once whole; versions that are long gone are removed."""
    shutil.copytree(source, base / ".new")
    (base / ".new").rename(base / str(version))
    shutil.rmtree(base / str(version - _KEPT), ignore_errors=True)


if __name__ == "__main__":
    run_main(main, Settings)
