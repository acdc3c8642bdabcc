"""TF Serving's metrics under their own names, and their Prometheus text form.

prometheus-client cannot print them: it appends _total to counters, and these names must stay as dashboards know them.
"""

import bisect
import re
import threading
from collections.abc import Iterable, Sequence


class Metric:
    """A family of series, one per combination of label values. Thread-safe."""

    kind = ""

    def __init__(self, path: str, labels: Sequence[str] = ()):
        """path: as TensorFlow names it, "/tensorflow/serving/request_count"."""
        self.path = path
        self.name = re.sub("[^a-zA-Z0-9_]", ":", path)
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], object] = {}
        self._lock = threading.Lock()
        REGISTRY.append(self)

    def lines(self) -> Iterable[str]:
        yield f"# TYPE {self.name} {self.kind}"
        with self._lock:
            series = sorted(self._series.items())
            for values, state in series:
                yield from self._series_lines(self._label_text(values), state)

    def _label_text(self, values: tuple[str, ...]) -> str:
        return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(self._labels, values, strict=True))

    def _series_lines(self, labels: str, state) -> Iterable[str]:
        raise NotImplementedError


REGISTRY: list[Metric] = []


class Counter(Metric):
    kind = "counter"

    def increase(self, amount: int, *values: str) -> None:
        with self._lock:
            self._series[values] = self._series.get(values, 0) + amount

    def value(self, *values: str) -> int:
        with self._lock:
            return self._series.get(values, 0)

    def sum(self) -> int:
        with self._lock:
            return sum(self._series.values())

    def _series_lines(self, labels, state):
        yield f"{self.name}{{{labels}}} {state}"


class Histogram(Metric):
    kind = "histogram"

    def __init__(self, path: str, labels: Sequence[str], limits: Sequence[float]):
        """limits: upper bounds of the buckets, ascending; a last one without bound is added."""
        super().__init__(path, labels)
        self._limits = tuple(limits)

    def observe(self, amount: float, *values: str) -> None:
        bucket = bisect.bisect_left(self._limits, amount)
        with self._lock:
            state = self._series.get(values)
            if state is None:
                state = self._series[values] = [[0] * (len(self._limits) + 1), 0.0]
            state[0][bucket] += 1
            state[1] += amount

    def count(self, *values: str) -> int:
        with self._lock:
            return sum(self._series[values][0]) if values in self._series else 0

    def _series_lines(self, labels, state):
        counts, total = state
        separator = "," if labels else ""
        running = 0
        for limit, count in zip((*map(_number, self._limits), "+Inf"), counts, strict=True):
            running += count
            yield f'{self.name}_bucket{{{labels}{separator}le="{limit}"}} {running}'
        yield f"{self.name}_sum{{{labels}}} {_number(total)}"
        yield f"{self.name}_count{{{labels}}} {running}"


def exposition() -> str:
    """Every metric in Prometheus' text format."""
    return "".join(f"{line}\n" for metric in REGISTRY for line in metric.lines())


def total(path: str) -> int:
    """Sum over all series of the counter with this path, 0 when there is none."""
    return sum(metric.sum() for metric in REGISTRY if metric.path == path and isinstance(metric, Counter))


def powers(scale: float, growth: float, count: int) -> list[float]:
    return [scale * growth**k for k in range(count)]


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return f"{value:.6g}" if value < 1e6 else f"{value:.12g}"


_LATENCY_LIMITS = powers(10, 1.8, 33)

REQUEST_COUNT = Counter("/tensorflow/serving/request_count", ("model_name", "status"))
REQUEST_LATENCY = Histogram("/tensorflow/serving/request_latency", ("model_name", "API", "entrypoint"), _LATENCY_LIMITS)
RUNTIME_LATENCY = Histogram("/tensorflow/serving/runtime_latency", ("model_name", "API", "runtime"), _LATENCY_LIMITS)
REQUEST_EXAMPLE_COUNTS = Histogram("/tensorflow/serving/request_example_counts", ("model",), powers(1, 2, 15))
REQUEST_EXAMPLE_COUNT_TOTAL = Counter("/tensorflow/serving/request_example_count_total", ("model",))
WARMUP_LATENCY = Histogram("/tensorflow/serving/model_warmup_latency", ("model_path", "status"), powers(1000, 1.8, 32))
WARMUP_RECORDS_READ = Counter("/tensorflow/serving/model_warmup_records_read", ("model_path",))

_BATCHING = "/tensorflow/serving/batching_session"
QUEUING_LATENCY = Histogram(f"{_BATCHING}/queuing_latency", ("thread_pool_name",), powers(100, 1.2, 52))
WRAPPED_RUN_COUNT = Counter(f"{_BATCHING}/wrapped_run_count")
PADDING_SIZE = Histogram(f"{_BATCHING}/padding_size", ("execution_batch_size",), powers(1, 2, 10))
INPUT_BATCH_SIZE = Histogram(f"{_BATCHING}/input_batch_size", (), powers(1, 2, 15))
PROCESSED_BATCH_SIZE = Histogram(f"{_BATCHING}/processed_batch_size", (), powers(1, 2, 15))


_served: set[str] = set()


def add_model(name: str) -> None:
    """From now on requests for this model are counted under its name."""
    _served.add(name)


def record_request(model: str, api: str, entrypoint: str, status: str, seconds: float) -> None:
    """Counts one inference request; only those answered OK enter the latency.

    Names that were never served are counted together, under the empty name: clients could invent them without end, and
    a series is kept for good.
    """
    model = model if model in _served else ""
    REQUEST_COUNT.increase(1, model, status)
    if status == "OK":
        REQUEST_LATENCY.observe(seconds * 1e6, model, api, entrypoint)
