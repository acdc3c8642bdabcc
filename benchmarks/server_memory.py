"""Server and gateway under a limit of memory, while clients send texts of 1 to 5,000 words.

    python -m benchmarks.server_memory --tokenizer=30k-clean.model --minutes=60
    MALLOC_ARENA_MAX=2 python -m benchmarks.server_memory --model_base_path=$PWD/models/m --minutes=5

Without --model_base_path it exports ALBERT-base with random weights in int8 for texts. Both processes are in a control
group of their own where this user may make one (root does, on Linux); elsewhere their memory is only measured. Printed:
answers by status, and the memory over time. The status is 1 where a process was killed or a request failed that was
not refused with Retry-After.
"""

import collections
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from scripts.server import free_port

from benchmarks import servers
from benchmarks.machine import machine_line
from benchmarks.memory import memory_mib
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    """The command's flags."""

    model_base_path: str = setting("", help="an export for texts of an embedder; empty: one is made of --tokenizer")
    tokenizer: str = setting("", help="the vocabulary of the model that is made")
    config: str = setting("albert_base_v2", help="the configuration of the model that is made")
    limit_mb: int = setting(1024, help="limit of memory of both processes", at_least=1)
    minutes: float = setting(60.0, help="how long", above=0)
    clients: int = setting(64, help="requests at once", at_least=1)
    max_words: int = setting(5000, help="words of the longest text", at_least=1)
    server_flags: tuple[str, ...] = setting((), help="more flags of the server, one each time")
    gateway_flags: tuple[str, ...] = setting((), help="more flags of the gateway, one each time")


class Group:
    """A control group with a limit of memory, of version 2 or 1; or none."""

    def __init__(self, limit_mb: int):
        name = f"server-memory-{os.getpid()}"
        self.folder, self._peak = None, ""
        for base, limit, peak in (
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        ):
            folder = Path(base, name)
            try:
                folder.mkdir()
                # Only the kernel makes this file: where version 1 is mounted, the first folder is a plain one.
                with open(folder / limit, "r+") as file:
                    file.write(str(limit_mb * 2**20))
                self.folder, self._peak = folder, peak
                return
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def enter(self) -> None:
        """Puts the calling process into the group."""
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def used_mb(self) -> tuple[float, float]:
        """What processes hold now, and the peak with cached files, which go before a process is killed."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return int(stat.get("anon", stat.get("rss", 0))) / 2**20, int((self.folder / self._peak).read_text()) / 2**20

    def close(self) -> None:
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()


class Clients:
    """Clients that ask until they are stopped; a refused one comes again when it is told to."""

    def __init__(self, port: int, max_words: int):
        self._port, self._max_words = port, max_words
        self.statuses: collections.Counter = collections.Counter()
        self.wrong: list[str] = []
        self.words = 0
        self.stop = threading.Event()

    def ask(self, seed: int) -> None:
        """One client's requests, a connection kept open as long as it lasts."""
        chance, http = random.Random(seed), HTTPConnection("127.0.0.1", self._port, timeout=300)
        while not self.stop.is_set():
            # As many texts of 1 to 10 words as of 500 to 5,000.
            words = round(self._max_words ** chance.random())
            text = " ".join(chance.choices(_WORDS, k=words))
            try:
                http.request("POST", "/embed", json.dumps({"inputs": text}))
                answer = http.getresponse()
                status, wait, said = answer.status, answer.headers["Retry-After"], answer.read()
            except (OSError, HTTPException) as error:
                status, wait, said = type(error).__name__, None, str(error).encode()
                http.close()
                self.stop.wait(1)
            self.statuses[status] += 1
            self.words += words
            if status != 200:
                if status not in (429, 503) or wait is None:
                    self.wrong.append(f"{status}: {said[:200]!r}")
                self.stop.wait(float(wait or 1))


_WORDS = (
    "the", "of", "river", "capital", "unbelievably", "paris", "film", "1984", "dull", "international", "cat, sat.",
)  # fmt: skip


def main(settings: Settings) -> None:
    """Serves, asks and prints."""
    print(machine_line())
    group = Group(settings.limit_mb)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(group):
        base = settings.model_base_path or str(_export(settings, Path(folder)))
        ports = free_port(), free_port()
        server = ["serving.model_server", f"--port={ports[0]}", "--model_name=m", f"--model_base_path={base}"]
        gateway = ["serving.gateway", f"--target=127.0.0.1:{ports[0]}", "--model=m", f"--port={ports[1]}"]
        commands = [[*server, *settings.server_flags], [*gateway, *settings.gateway_flags]]
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(servers.command(*words, preexec_fn=group.enter)) for words in commands]
            _wait(ports[1], processes)
            failed = _load(settings, ports[1], group, processes)
    if failed:
        raise UserError(failed)


def _load(settings: Settings, port: int, group: Group, processes: list) -> str:
    clients = Clients(port, settings.max_words)
    threads = [threading.Thread(target=clients.ask, args=(seed,)) for seed in range(settings.clients)]
    for thread in threads:
        thread.start()
    begin, memory, next_line = time.monotonic(), [], 60.0
    try:
        while (passed := time.monotonic() - begin) < settings.minutes * 60:
            if ended := [process for process in processes if process.poll() is not None]:
                return f"a process ended with status {ended[0].returncode} after {passed:.0f} s"
            held = [_anonymous_mib(process) for process in processes]
            memory.append((sum(held), *held))
            if passed >= next_line:
                next_line += 60.0
                print(f"{passed / 60:5.1f} min  {memory[-1][0]:6.0f} MB  {dict(clients.statuses)}", flush=True)
            time.sleep(1.0)
    finally:
        clients.stop.set()
        for thread in threads:
            thread.join()
    later = [both for both, *_ in memory[len(memory) // 4 :]]
    half = len(later) // 2
    print(f"{sum(clients.statuses.values()):,} answers with {clients.words:,} words: {dict(clients.statuses)}")
    most, server, gateway = (max(column) for column in zip(*memory, strict=True))
    print(f"memory, MB: {most:.0f} at most; the server {server:.0f}, the gateway {gateway:.0f}")
    print(f"most after a quarter of the time, MB: {max(later[:half]):.0f}, then {max(later[half:]):.0f}")
    if group.folder is not None:
        print(f"control group: {group.used_mb()[1]:.0f} MB at most of {settings.limit_mb}, with cached files")
    else:
        print("no control group could be made: measured, not limited")
    print(f"{len(clients.wrong)} failed" + "".join(f"\n  {one}" for one in clients.wrong[:5]))
    return f"{len(clients.wrong)} requests failed" if clients.wrong else ""


def _export(settings: Settings, folder: Path) -> Path:
    """Exports in a process of its own, whose memory is then free."""
    command = [sys.executable, "-c", _MAKE, str(folder), settings.config, settings.tokenizer]
    subprocess.run(command, check=True)
    return folder / "exported"


_MAKE = """
import sys
import keras
from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.checkpoints.formats import save_keras
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.export import ExportSettings, export
from tfrecords.tokenizers.loading import load_tokenizer

folder, config, tokenizer = sys.argv[1:]
keras.utils.set_random_seed(0)
save_keras(AlbertSentenceEmbedder(AlbertEncoder(AlbertConfig.named(config))), f"{folder}/model.keras")
load_tokenizer(tokenizer).save(folder)
export(ExportSettings(model=folder, output_dir=f"{folder}/exported", inputs="text", compute="int8"))
"""


def _wait(port: int, processes: list[subprocess.Popen]) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if ended := [process for process in processes if process.poll() is not None]:
            raise UserError(f"a process ended with status {ended[0].returncode} at its start")
        with contextlib.suppress(OSError, HTTPException):
            http = HTTPConnection("127.0.0.1", port, timeout=60)
            http.request("GET", "/health")
            if http.getresponse().status == 200:
                return
        time.sleep(0.5)
    raise UserError("the gateway is not ready after 300 s")


def _anonymous_mib(process: subprocess.Popen) -> float:
    """What a process holds of its own: resident memory without mapped files."""
    try:
        return memory_mib("RssAnon", process.pid)
    except (OSError, KeyError):
        return 0.0


if __name__ == "__main__":
    run_main(main, Settings)
