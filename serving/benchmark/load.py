"""Sends serialized requests in a closed loop (N clients) or an open loop (at due times)."""

import math
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np

from serving.client.channel import Connection
from serving.wire import protos

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
# A percentile is quoted when at least this many samples lie beyond it: p50 takes 20, p99 1,000, p99.9 10,000.
SAMPLES_BEYOND = 10


def samples_needed(percent: float) -> int:
    """Returns a percentile's minimum number of samples."""
    return math.ceil(round(SAMPLES_BEYOND / (1 - percent / 100), 6))


def percentile(ordered: np.ndarray, percent: float) -> float:
    """Returns the nearest-rank percentile of ascending values."""
    return float(ordered[max(math.ceil(round(len(ordered) * percent / 100, 9)), 1) - 1])


def summarise(latencies: np.ndarray) -> dict[str, float | None]:
    """Returns min, mean, max and PERCENTILES; None where samples are too few."""
    ordered = np.sort(latencies)
    if not len(ordered):
        return dict.fromkeys(["min", "mean", *PERCENTILES, "max"])
    quoted = {
        name: percentile(ordered, percent) if len(ordered) >= samples_needed(percent) else None
        for name, percent in PERCENTILES.items()
    }
    return {"min": float(ordered[0]), "mean": float(ordered.mean()), **quoted, "max": float(ordered[-1])}


# A point that lacks answers goes on for this many times its seconds at most.
LONGEST_STRETCH = 10
# Numbers of a request in a closed loop's record: sent, done, code.
_COLUMNS = 3


def due_times(arrival: str, rate: float, seconds: float) -> np.ndarray:
    """Returns the due times of `rate * seconds` requests: one every 1/rate ("constant"), or a Poisson process."""
    count = round(rate * seconds)
    if arrival == "constant":
        return np.arange(count) / rate
    return np.sort(np.random.default_rng(0).uniform(0, seconds, size=count))


@dataclass(frozen=True)
class Load:
    """A closed loop of `clients`, or an open loop with `rate` requests per second.

    It goes on past its seconds until it has `least_requests`, by default enough for a median.
    """

    arrival: str
    clients: int | None = None
    rate: float | None = None
    least_requests: int = samples_needed(50.0)

    @property
    def name(self) -> str:
        if self.rate is None:
            return f"closed loop, {self.clients} client{'s' if self.clients > 1 else ''}"
        return f"open loop, {self.arrival} {self.rate:.4g}/s"

    def stretched(self, seconds: float) -> float:
        """Returns how long an open loop goes on."""
        return min(max(seconds, self.least_requests / self.rate), LONGEST_STRETCH * seconds)


@dataclass
class Samples:
    """One entry per request; times are seconds after the start.

    `code` is the gRPC status number. `failures` has the time and message of the first failure by status. `cpu_share` is
    the share of a core that the generator used. `seconds` is how long the load was meant to last.
    """

    due: np.ndarray
    sent: np.ndarray
    done: np.ndarray
    code: np.ndarray
    seconds: float
    failures: dict[int, tuple[float, str]] = field(default_factory=dict)
    cpu_share: float = 0.0

    @property
    def latencies_ms(self) -> np.ndarray:
        """Latencies from the due time, so that delays of the generator count."""
        return (self.done - self.due) * 1000


class Driver:
    """Sends loads over its own connection to one server."""

    def __init__(self, connection: Connection):
        self._channel = connection.open(own_connection=True)
        self._stub = self._channel.unary_unary(protos.PREDICT)

    def close(self) -> None:
        self._channel.close()

    def run(self, load: Load, requests: Sequence[bytes], seconds: float, timeout_s: float) -> Samples:
        """Sends the requests in turn."""
        self._failures = dict[int, tuple[float, str]]()
        begin, cpu = time.perf_counter(), time.process_time()
        if load.rate is None:
            sent, done, code = self._closed(load, requests, seconds, timeout_s, begin)
            due = sent
        else:
            seconds = load.stretched(seconds)
            due = due_times(load.arrival, load.rate, seconds)
            sent, done, code = self._open(due, requests, timeout_s, begin)
        cpu_share = (time.process_time() - cpu) / (time.perf_counter() - begin)
        return Samples(due, sent, done, code.astype(np.uint8), seconds, self._failures, cpu_share)

    def _closed(
        self, load: Load, requests: Sequence[bytes], seconds: float, timeout_s: float, start: float
    ) -> tuple[np.ndarray, ...]:
        # Arrays, since in a long run tuples would take ten times the memory.
        records = [array("d") for _ in range(load.clients or 0)]
        clock, stopped = time.perf_counter, threading.Event()

        def send(client: int, record: array) -> None:
            item = client
            while not stopped.is_set():
                sent = clock() - start
                # A generator that the machine kept waiting for the whole stretch still sends: a point without an answer
                # says nothing of the server.
                if record and sent >= seconds:
                    answered = sum(map(len, records)) / _COLUMNS
                    if answered >= load.least_requests or sent >= LONGEST_STRETCH * seconds:
                        break
                code = 0
                try:
                    self._stub(requests[item % len(requests)], timeout=timeout_s)
                except grpc.RpcError as error:
                    code = self._failed(error, clock() - start)
                record.extend((sent, clock() - start, code))
                item += len(records)

        threads = [threading.Thread(target=send, args=one, daemon=True) for one in enumerate(records)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            stopped.set()
        sent, done, code = np.concatenate([np.empty(0), *records]).reshape(-1, _COLUMNS).T
        return sent, done, code

    def _open(
        self, due: np.ndarray, requests: Sequence[bytes], timeout_s: float, start: float
    ) -> tuple[np.ndarray, ...]:
        sent, done, code = np.zeros((3, len(due)))
        all_done, clock = threading.Semaphore(0), time.perf_counter

        def when_done(index: int) -> Callable:
            def note(call) -> None:
                done[index] = clock() - start
                if call.code() is not grpc.StatusCode.OK:
                    code[index] = self._failed(call, done[index])
                all_done.release()

            return note

        for index, at in enumerate(due.tolist()):
            wait = start + at - clock()
            if wait > 0:
                time.sleep(wait)
            sent[index] = clock() - start
            call = self._stub.future(requests[index % len(requests)], timeout=timeout_s)
            call.add_done_callback(when_done(index))
        for _ in due:
            all_done.acquire()
        return sent, done, code

    def _failed(self, call, done: float) -> int:
        code = (call.code() or grpc.StatusCode.UNKNOWN).value[0]
        # Looked up first: a dead server fails tens of thousands of times a second.
        if code not in self._failures:
            self._failures[code] = float(done), call.details() or ""
        return code
