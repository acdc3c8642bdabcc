"""Sends serialized requests in a closed loop (N clients) or an open loop (at due times)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import grpc
import numpy as np

from serving.benchmark.rest import RestStub
from serving.client.channel import Connection
from serving.wire import protos


def constant_arrivals(rate: float, seconds: float) -> np.ndarray:
    """Returns due times in seconds, one every 1/rate."""
    return np.arange(round(rate * seconds)) / rate


def poisson_arrivals(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Returns Poisson due times of exactly `rate * seconds` requests."""
    return np.sort(np.random.default_rng(seed).uniform(0, seconds, size=round(rate * seconds)))


def due_times(arrival: str, rate: float, seconds: float, seed: int) -> np.ndarray:
    """Returns constant or Poisson due times."""
    return constant_arrivals(rate, seconds) if arrival == "constant" else poisson_arrivals(rate, seconds, seed)


@dataclass(frozen=True)
class LoadShare:
    """The part of a load that one process sends."""

    requests: Sequence[bytes]
    references: Sequence[bytes | None]
    timeout_s: float
    start: float
    seconds: float
    # Closed loop: that many clients. Open loop: `due`, seconds after `start`.
    clients: int = 0
    due: np.ndarray | None = None
    # A closed loop goes on past `seconds` until it has this many answers, `longest_seconds` at most.
    least_requests: int = 0
    longest_seconds: float = 0.0
    # Which requests of the workload this process sends: every `item_step`-th one.
    first_item: int = 0
    item_step: int = 1
    # Where the requests are posted, for a workload over REST (closed loop); empty: gRPC's Predict.
    url: str = ""


@dataclass(frozen=True)
class Effort:
    """The generator's seconds: CPU, wall, wall summed over threads, and threads' `waiting` for a CPU."""

    cpu: float = 0.0
    wall: float = 0.0
    waiting: float = 0.0
    threads: float = 0.0

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class Samples:
    """One entry per request, by due time; times are seconds after the start.

    `code` is the gRPC status number. `differing` counts answers whose bytes differ from the reference, by (item of
    the workload, answer).
    """

    due: np.ndarray
    sent: np.ndarray
    done: np.ndarray
    code: np.ndarray
    item: np.ndarray
    differing: Counter = field(default_factory=Counter)
    messages: dict[int, tuple[float, str]] = field(default_factory=dict)
    effort: Effort = Effort()

    @property
    def latencies_ms(self) -> np.ndarray:
        """Latencies from the due time, so that delays of the generator count."""
        return (self.done - self.due) * 1000

    def sorted(self) -> "Samples":
        order = np.argsort(self.due, kind="stable")
        return replace(self, **{name: getattr(self, name)[order] for name in _COLUMNS})


_COLUMNS = ("due", "sent", "done", "code", "item")


def join(parts: Sequence[Samples]) -> Samples:
    """Joins the samples of several processes."""
    joined = Samples(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))
    for part in parts:
        joined.differing.update(part.differing)
        _add_messages(joined.messages, part.messages)
        joined.effort += part.effort
    return joined.sorted()


def _add_messages(messages: dict[int, tuple[float, str]], more: dict[int, tuple[float, str]]) -> None:
    for code, message in more.items():
        messages[code] = min(messages.get(code, message), message)


class Driver:
    """Sends loads over open connections to one server."""

    def __init__(self, connection: Connection, connections: int = 1):
        self._channels = [connection.open(own_connection=True) for _ in range(connections)]
        self._stubs = [channel.unary_unary(protos.PREDICT) for channel in self._channels]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def run(self, share: LoadShare) -> Samples:
        begin, cpu = time.perf_counter(), time.process_time()
        samples = self._closed(share) if share.due is None else self._open(share)
        samples.effort += Effort(cpu=time.process_time() - cpu, wall=time.perf_counter() - begin)
        return samples

    def _closed(self, share: LoadShare) -> Samples:
        records: list[list[tuple]] = [[] for _ in range(share.clients)]
        efforts: list[Effort] = []
        checkers = [_Checker(share.references) for _ in range(share.clients)]
        with self._stubs_of(share) as stubs:
            threads = [
                threading.Thread(
                    target=_closed_client,
                    args=(stubs[i % len(stubs)], share, i, records, checkers[i], efforts),
                    daemon=True,
                )
                for i in range(share.clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        rows = [row for record in records for row in record]
        sent, done, code, item = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        samples = Samples(sent, sent, done, code.astype(np.uint8), item.astype(np.int64))
        for checker in checkers:
            checker.add_to(samples)
        samples.effort = sum(efforts, Effort())
        return samples.sorted()

    @contextmanager
    def _stubs_of(self, share: LoadShare) -> Iterator[Sequence[Callable]]:
        if not share.url:
            yield self._stubs
            return
        # HTTP/1.1 answers one request per connection at a time, so each client has its own.
        stubs = [RestStub(share.url) for _ in range(share.clients)]
        for stub in stubs:
            stub.connect()
        try:
            yield stubs
        finally:
            for stub in stubs:
                stub.close()

    def _open(self, share: LoadShare) -> Samples:
        size, requests, items = len(share.due), share.requests, len(share.requests)
        sent, done, code = np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.uint8)
        item = (np.arange(size) * share.item_step + share.first_item) % items
        checker = _Checker(share.references)
        all_done = threading.Semaphore(0)
        clock, start, timeout = time.perf_counter, share.start, share.timeout_s

        def when_done(index: int) -> Callable:
            def note(call) -> None:
                done[index] = clock() - start
                code[index] = checker.finished(call, int(item[index]), done[index])
                all_done.release()

            return note

        watch = _ThreadWatch()
        for index, due in enumerate(share.due.tolist()):
            wait = start + due - clock()
            if wait > 0:
                time.sleep(wait)
            sent[index] = clock() - start
            stub = self._stubs[index % len(self._stubs)]
            stub.future(requests[item[index]], timeout=timeout).add_done_callback(when_done(index))
        effort = watch.effort()
        for _ in range(size):
            all_done.acquire()
        samples = Samples(share.due, sent, done, code, item, effort=effort)
        checker.add_to(samples)
        return samples


def _closed_client(
    stub, share: LoadShare, client: int, records: list[list[tuple]], checker: "_Checker", efforts: list[Effort]
) -> None:
    clock, start, items = time.perf_counter, share.start, len(share.requests)
    record = records[client]
    time.sleep(max(share.start - clock(), 0))
    item = (share.first_item + client) % items
    watch = _ThreadWatch()
    while True:
        sent = clock() - start
        # A generator that the machine kept waiting for the whole stretch still sends: a point without an answer says
        # nothing of the server.
        if record and sent >= share.seconds:
            answered = sum(map(len, records))
            if answered >= share.least_requests or sent >= share.longest_seconds:
                break
        try:
            answer = stub(share.requests[item], timeout=share.timeout_s)
            done, code = clock() - start, 0
            checker.answered(answer, item)
        except grpc.RpcError as error:
            done = clock() - start
            code = checker.failed(error, done)
        record.append((sent, done, code, item))
        item = (item + share.item_step) % items
    efforts.append(watch.effort())


class _ThreadWatch:
    def __init__(self):
        self._begin, self._waited = time.perf_counter(), _waited_s()

    def effort(self) -> Effort:
        return Effort(waiting=_waited_s() - self._waited, threads=time.perf_counter() - self._begin)


def _waited_s() -> float:
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


class _Checker:
    def __init__(self, references: Sequence[bytes | None]):
        self._references = references
        self._differing: Counter = Counter()
        self._messages: dict[int, tuple[float, str]] = {}

    def answered(self, answer: bytes, item: int) -> None:
        reference = self._references[item]
        if reference is not None and answer != reference:
            self._differing[item, answer] += 1

    def failed(self, call, done: float) -> int:
        code = (call.code() or grpc.StatusCode.UNKNOWN).value[0]
        # Looked up first: a dead server fails tens of thousands of times a second.
        if code not in self._messages:
            self._messages[code] = float(done), call.details() or ""
        return code

    def finished(self, call, item: int, done: float) -> int:
        if call.code() is not grpc.StatusCode.OK:
            return self.failed(call, done)
        self.answered(call.result(), item)
        return 0

    def add_to(self, samples: Samples) -> None:
        samples.differing.update(self._differing)
        _add_messages(samples.messages, self._messages)
