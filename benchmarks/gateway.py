"""What the gateway costs, and what batching by tokens and by rows wins.

    python -m benchmarks.gateway                                          the gateway's own time, over direct gRPC
    python -m benchmarks.gateway --what=batching --model_base_path=$PWD/models/sst2 --text_file=lines.txt
    python -m benchmarks.gateway --what=batching.config --model_base_path=$PWD/models/sst2 --text_file=lines.txt

The first asks a server that does no work, one request at a time, in turns by gRPC and by HTTP through the gateway; each
of the three has a process of its own. The second asks a real export, `--clients` at once, one text a request: the
server alone, the server that batches by rows, and the gateway in front of the server that does not batch; requests/s of
each, and its 50th and 99th percentile, at the rate that the clients reach. Beside them what no batching of `--clients`
texts can pass: ready lists of so many texts of like lengths, two at the server at once, from clients that never think.
The third asks no gateway, but servers that batch by rows, each with other parameters, and one that does not batch, by
1, 4, 16 and 64 clients: from it comes serving/deploy/batching.config.
"""

import contextlib
import functools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from benchmarks import servers
from benchmarks.machine import machine_line
from benchmarks.servers import post
from benchmarks.stand_in import stand_in_process
from benchmarks.timing import medians_in_turns
from serving.benchmark.stand_in import TEXT, StandIn
from serving.client import Client
from serving.wire import protos
from serving.wire.protos import BatchingParameters
from serving.wire.tensors import fill_tensor
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

ROUNDS = 20
CALLS = 100
TURNS = 5
CONFIG_TURNS = 2
SIZE = 768
_BATCHING = Path(__file__).parents[1] / "serving" / "deploy" / "batching.config"
CLIENTS = (1, 4, 16, 64)
# What each server has in place of batching.config's values; None: it does not batch.
CANDIDATES: dict[str, str | None] = {
    "no batching": None,
    "batching.config": "",
    "timeout 0 ms": "batch_timeout_micros { value: 0 }",
    "timeout 1 ms": "batch_timeout_micros { value: 1000 }",
    "timeout 5 ms": "batch_timeout_micros { value: 5000 }",
    "timeout 10 ms": "batch_timeout_micros { value: 10000 }",
    "at most 8 rows": "max_batch_size { value: 8 } max_enqueued_batches { value: 128 }",
    "2 batches at once": "num_batch_threads { value: 2 }",
}


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    """The command's flags."""

    what: str = setting("overhead", help="what is measured", choices=("overhead", "batching", "batching.config"))
    model_base_path: str = setting("", help="an export by text, for batching: a classifier or an embedder")
    text_file: str = setting("", help="texts to ask, one a line, for batching")
    clients: int = setting(8, help="requests at once; batching.config has its own numbers", at_least=1)
    seconds: float = setting(20.0, help="of each figure, all turns together", above=0)
    max_batch_tokens: int = setting(1024, help="the gateway's", at_least=1)
    max_in_flight: int = setting(2, help="the gateway's", at_least=1)


def main(settings: Settings) -> None:
    print(machine_line())
    if settings.what == "overhead":
        return overhead()
    if not settings.model_base_path or not settings.text_file:
        raise UserError(f"--what={settings.what} needs --model_base_path=FOLDER and --text_file=FILE")
    texts = [line for line in Path(settings.text_file).read_text("utf-8").splitlines() if line.strip()]
    random.Random(0).shuffle(texts)
    return (batching if settings.what == "batching" else batching_config)(settings, texts)


def overhead() -> None:
    """One text a request: the same answer by gRPC from arrays to arrays, and by HTTP from JSON to JSON."""
    text, body = "a fine film, all in all", json.dumps({"inputs": "a fine film, all in all"}).encode()
    with (
        stand_in_process(_embedder) as target,
        servers.gateway(target, "default") as (port, process),
        Client(target, "default") as client,
    ):
        inputs = {"text": np.array([text.encode()], object)}
        http = HTTPConnection("127.0.0.1", port)
        turns: dict[str, Callable[[], object]] = {
            "gRPC": lambda: client.predict(inputs),
            "gateway": lambda: post(http, "/embed", body),
        }
        before = _cpu_seconds(process)
        direct, through = medians_in_turns(turns, ROUNDS, CALLS)
        computed = (_cpu_seconds(process) - before) / (ROUNDS * CALLS) * 1000
    print(f"1 text, {SIZE} numbers back: gRPC p50 {direct:.3f} ms, gateway p50 {through:.3f} ms")
    print(f"added {through - direct:.3f} ms (asked: at most 1.0); the gateway computed {computed:.2f} ms a request")


def _embedder() -> StandIn:
    response = protos.PredictResponse()
    fill_tensor(response.outputs["embedding"], np.random.default_rng(0).normal(size=(1, SIZE)).astype(np.float32))
    answer = response.SerializeToString()
    return StandIn(lambda request, context: answer, signatures={"serving_default": (TEXT, {"embedding": (1, 2)})})


def batching(settings: Settings, texts: list[str]) -> None:
    """The three ways by turns, over the same texts in the same order; all servers stay up, one at a time is asked."""
    rows = ["--enable_batching", f"--batching_parameters_file={_BATCHING}"]
    options = [f"--max_batch_tokens={settings.max_batch_tokens}", f"--max_in_flight={settings.max_in_flight}"]
    with contextlib.ExitStack() as stack:
        plain, by_rows = (
            stack.enter_context(servers.model_server(settings.model_base_path, *flags)) for flags in ([], rows)
        )
        port, _ = stack.enter_context(servers.gateway(plain, "m", *options))
        ways: dict[str, Callable] = {
            "no batching": lambda: _grpc_caller(plain),
            "by rows": lambda: _grpc_caller(by_rows),
            "by tokens": lambda: _http_caller(port),
        }
        times: dict[str, list[np.ndarray]] = {name: [] for name in ways}
        ready = _lists_of_like_lengths(texts, settings.clients)
        calls = 0
        for _ in range(TURNS):
            for name, make in ways.items():
                times[name].append(_load(settings.seconds / TURNS, texts, make, settings.clients))
            calls += len(_load(settings.seconds / TURNS, ready, ways["no batching"], 2))
    figures = {name: _figures(found, settings.seconds) for name, found in times.items()}
    for name, (rate, p50, p99) in figures.items():
        print(f"{name:12} {rate:8.1f} texts/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms", flush=True)
    (rate, _, p99), (rate_of_rows, _, p99_of_rows) = figures["by tokens"], figures["by rows"]
    print(f"by tokens / by rows: {rate / rate_of_rows:.2f} in rate, {p99 / p99_of_rows:.2f} in p99")
    ceiling = calls * settings.clients / settings.seconds
    print(f"ready lists of {settings.clients}: {ceiling:.1f} texts/s, {ceiling / rate_of_rows:.2f} of by rows")
    each = [len(one) / len(other) for one, other in zip(times["by tokens"], times["by rows"])]
    print("rate of each turn by that of rows: " + ", ".join(f"{ratio:.2f}" for ratio in each))


def batching_config(settings: Settings, texts: list[str]) -> None:
    """Every candidate with every number of clients, by turns, so that a machine whose speed moves is so for all."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets = {}
        for number, (name, changes) in enumerate(CANDIDATES.items()):
            flags = [] if changes is None else _batching_flags(folder / str(number), changes)
            targets[name] = stack.enter_context(servers.model_server(settings.model_base_path, *flags))
        times: dict[tuple[str, int], list[np.ndarray]] = {(name, n): [] for name in targets for n in CLIENTS}
        for _ in range(CONFIG_TURNS):
            for (name, clients), found in times.items():
                caller = functools.partial(_grpc_caller, targets[name])
                found.append(_load(settings.seconds / CONFIG_TURNS, texts, caller, clients))
    print("texts/s (p50 in ms) by clients  " + "  ".join(f"{clients:>14}" for clients in CLIENTS))
    for name in targets:
        figures = [_figures(times[name, clients], settings.seconds) for clients in CLIENTS]
        print(f"{name:31}" + "".join(f"  {rate:6.1f} ({p50:5.0f})" for rate, p50, _ in figures), flush=True)


def _batching_flags(file: Path, changes: str) -> list[str]:
    parameters = text_format.Parse(_BATCHING.read_text(), BatchingParameters())
    for field, value in text_format.Parse(changes, BatchingParameters()).ListFields():
        getattr(parameters, field.name).CopyFrom(value)
    file.write_text(text_format.MessageToString(parameters))
    return ["--enable_batching", f"--batching_parameters_file={file}"]


def _figures(times: list[np.ndarray], seconds: float) -> tuple[float, float, float]:
    """Texts a second, and the 50th and 99th percentile in milliseconds, of all turns together."""
    all_times = np.concatenate(times)
    return len(all_times) / seconds, *map(float, np.percentile(all_times, [50, 99]))


def _lists_of_like_lengths(texts: list[str], size: int) -> list[list[str]]:
    """All of the texts, in random order of the lists."""
    ordered = sorted(texts, key=len)
    lists = [ordered[start : start + size] for start in range(0, len(ordered) - size + 1, size)]
    random.Random(0).shuffle(lists)
    return lists


def _grpc_caller(target: str) -> Callable[[str | list[str]], object]:
    client = Client(target, "m")
    return lambda text: client.predict({"text": [text] if isinstance(text, str) else text})


def _http_caller(port: int) -> Callable[[str], object]:
    http = HTTPConnection("127.0.0.1", port)
    path = "/embed" if "embed" in servers.info(port)["can"] else "/predict"
    return lambda text: post(http, path, json.dumps({"inputs": text}).encode())


def _load(seconds: float, texts: Sequence, make: Callable, clients: int) -> np.ndarray:
    """Milliseconds of each request of one turn, after two seconds of the same."""
    times: list[list[float]] = [[] for _ in range(clients)]
    start = time.perf_counter() + 2.0

    def work(number: int) -> None:
        call, place = make(), number
        while time.perf_counter() < start + seconds:
            begin = time.perf_counter()
            call(texts[place % len(texts)])
            place += clients
            if begin >= start:
                times[number].append(time.perf_counter() - begin)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))  # A failure of one is raised here.
    return np.concatenate(times) * 1000


def _cpu_seconds(process: int) -> float:
    """What a process has computed, in user and kernel mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run_main(main, Settings)
