"""Sends serialized requests in a closed loop (N clients) or an open loop (at due times)."""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np

from serving.client.channel import Connection
from serving.wire import protos

# A point that lacks answers goes on for this many times its seconds at most.
LONGEST_STRETCH = 10
# Different answers that a process keeps to compare them after the run.
_MOST_DIFFERING_BYTES = 2**26


def due_times(arrival: str, rate: float, seconds: float) -> np.ndarray:
    """Returns the due times of `rate * seconds` requests: one every 1/rate ("constant"), or a Poisson process."""
    count = round(rate * seconds)
    if arrival == "constant":
        return np.arange(count) / rate
    return np.sort(np.random.default_rng(0).uniform(0, seconds, size=count))


@dataclass(frozen=True)
class LoadShare:
    """The part of a load that one process sends."""

    requests: Sequence[bytes]
    # The answer to each request that later answers are compared with.
    references: Sequence[bytes]
    timeout_s: float
    start: float
    seconds: float
    # Closed loop: that many clients. Open loop: `due`, seconds after `start`.
    clients: int = 0
    due: np.ndarray | None = None
    # A closed loop goes on past `seconds` until it has this many answers, LONGEST_STRETCH times as long at most.
    least_requests: int = 0
    # Which requests of the workload this process sends: every `item_step`-th one.
    first_item: int = 0
    item_step: int = 1


@dataclass
class Samples:
    """One entry per request; times are seconds after the start.

    `code` is the gRPC status number. `differing` counts answers whose bytes differ from the reference, by (item of
    the workload, answer), or by None if they were too many to keep. `failures` has the time and message of the first
    failure by status. `cpu_share` is the share of a core that the generator used.
    """

    due: np.ndarray
    sent: np.ndarray
    done: np.ndarray
    code: np.ndarray
    differing: Counter = field(default_factory=Counter)
    failures: dict[int, tuple[float, str]] = field(default_factory=dict)
    cpu_share: float = 0.0

    @property
    def latencies_ms(self) -> np.ndarray:
        """Latencies from the due time, so that delays of the generator count."""
        return (self.done - self.due) * 1000


def join(parts: Sequence[Samples]) -> Samples:
    """Joins the samples of several processes."""
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("due", "sent", "done", "code"))
    joined = Samples(*columns, cpu_share=max(part.cpu_share for part in parts))
    for part in parts:
        joined.differing.update(part.differing)
        for code, failure in part.failures.items():
            joined.failures[code] = min(joined.failures.get(code, failure), failure)
    return joined


class Driver:
    """Sends loads over its own connection to one server."""

    def __init__(self, connection: Connection):
        self._channel = connection.open(own_connection=True)
        self._stub = self._channel.unary_unary(protos.PREDICT)

    def close(self) -> None:
        self._channel.close()

    def run(self, share: LoadShare) -> Samples:
        begin, cpu = time.perf_counter(), time.process_time()
        checker = _Checker(share.references)
        due, sent, done, code = self._closed(share, checker) if share.due is None else self._open(share, checker)
        cpu_share = (time.process_time() - cpu) / (time.perf_counter() - begin)
        return Samples(due, sent, done, code.astype(np.uint8), checker.differing, checker.failures, cpu_share)

    def _closed(self, share: LoadShare, checker: "_Checker") -> tuple[np.ndarray, ...]:
        # Arrays, since in a long run tuples would take ten times the memory.
        records = [array("d") for _ in range(share.clients)]
        threads = [
            threading.Thread(target=_closed_client, args=(self._stub, share, i, records, checker), daemon=True)
            for i in range(share.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sent, done, code = np.concatenate([np.empty(0), *records]).reshape(-1, _COLUMNS).T
        return sent, sent, done, code

    def _open(self, share: LoadShare, checker: "_Checker") -> tuple[np.ndarray, ...]:
        size, items = len(share.due), len(share.requests)
        sent, done, code = np.zeros(size), np.zeros(size), np.zeros(size)
        all_done = threading.Semaphore(0)
        clock, start = time.perf_counter, share.start

        def when_done(index: int, item: int) -> Callable:
            def note(call) -> None:
                done[index] = clock() - start
                if call.code() is grpc.StatusCode.OK:
                    checker.answered(call.result(), item)
                else:
                    code[index] = checker.failed(call, done[index])
                all_done.release()

            return note

        for index, due in enumerate(share.due.tolist()):
            item = (share.first_item + index * share.item_step) % items
            wait = start + due - clock()
            if wait > 0:
                time.sleep(wait)
            sent[index] = clock() - start
            call = self._stub.future(share.requests[item], timeout=share.timeout_s)
            call.add_done_callback(when_done(index, item))
        for _ in range(size):
            all_done.acquire()
        return share.due, sent, done, code


# Numbers of a request in a closed loop's record: sent, done, code.
_COLUMNS = 3


def _closed_client(stub: Callable, share: LoadShare, client: int, records: list[array], checker: "_Checker") -> None:
    clock, start, items = time.perf_counter, share.start, len(share.requests)
    record = records[client]
    time.sleep(max(start - clock(), 0))
    item = (share.first_item + client) % items
    while True:
        sent = clock() - start
        # A generator that the machine kept waiting for the whole stretch still sends: a point without an answer says
        # nothing of the server.
        if record and sent >= share.seconds:
            answered = sum(map(len, records)) / _COLUMNS
            if answered >= share.least_requests or sent >= LONGEST_STRETCH * share.seconds:
                break
        try:
            answer = stub(share.requests[item], timeout=share.timeout_s)
            done, code = clock() - start, 0
            checker.answered(answer, item)
        except grpc.RpcError as error:
            done = clock() - start
            code = checker.failed(error, done)
        record.extend((sent, done, code))
        item = (item + share.item_step) % items


class _Checker:
    """Compares answers with the references and notes failures, for many threads."""

    def __init__(self, references: Sequence[bytes]):
        self._references = references
        self._lock = threading.Lock()
        self.differing: Counter = Counter()
        self.failures: dict[int, tuple[float, str]] = {}

    def answered(self, answer: bytes, item: int) -> None:
        if answer != self._references[item]:
            with self._lock:
                is_kept = len(self.differing) * len(answer) < _MOST_DIFFERING_BYTES
                self.differing[(item, answer) if is_kept else None] += 1

    def failed(self, call, done: float) -> int:
        code = (call.code() or grpc.StatusCode.UNKNOWN).value[0]
        # Looked up first: a dead server fails tens of thousands of times a second.
        if code not in self.failures:
            self.failures[code] = float(done), call.details() or ""
        return code
