"""A whole benchmark: every workload under every load, points that the model refuses skipped with a word."""

from collections.abc import Callable, Iterator

import grpc
from tqdm import tqdm

from serving.benchmark import environment
from serving.benchmark.point import Load, Probe, measure, probe
from serving.benchmark.settings import Settings
from serving.benchmark.workers import Workers
from serving.benchmark.workload import Workload, WorkloadMaker
from serving.client.client import Client
from serving.client.errors import ServingError
from tfrecords.errors import UserError

SCHEMA = 1
# A server that answers thus to the first request does so for what is in it; other failures are the server's state.
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INTERNAL,
)


def run_benchmark(settings: Settings) -> dict:
    """The report, as written to report.json. Raises UserError when nothing could be measured."""
    described = environment.describe()
    with Client(
        settings.connection,
        settings.model,
        version=settings.version,
        label=settings.label,
        signature=settings.signature,
        timeout_s=settings.timeout_s,
    ) as client:
        model = {"name": settings.model, "version": client.served_version(), "signature": str(client.signature())}
        maker = WorkloadMaker(client, settings.seed, settings.text_file, settings.tokenizer)
        points, skipped = _measure_all(client, maker, settings)
    if not points:
        raise UserError(f"nothing could be measured; {skipped[0]['name']}: {skipped[0]['reason']}")
    return {
        "schema": SCHEMA,
        "tool": "albert-tf serving.benchmark",
        "target": settings.connection.target,
        "model": model,
        "settings": _plain_settings(settings),
        "environment": described,
        "points": points,
        "skipped": skipped,
    }


def loads(settings: Settings) -> list[Load]:
    if settings.arrival == "closed":
        return [Load("closed", clients=clients) for clients in settings.clients]
    return [Load(settings.arrival, rate=rate) for rate in settings.rates]


def _workloads(maker: WorkloadMaker, settings: Settings) -> Iterator[Callable[[], Workload]]:
    for batch in settings.batches:
        if settings.mixed:
            yield lambda batch=batch: maker.mixed(batch, max(settings.lengths))
        else:
            for length in settings.lengths:
                yield lambda length=length, batch=batch: maker.of_length(length, batch)


def _measure_all(client: Client, maker: WorkloadMaker, settings: Settings) -> tuple[list[dict], list[dict]]:
    points, skipped = [], []
    all_loads, makers = loads(settings), list(_workloads(maker, settings))
    total = len(makers) * len(all_loads) * (settings.warmup_seconds + settings.seconds)
    with (
        Workers(settings.connection, settings.processes, settings.connections) as workers,
        tqdm(total=total, unit="s", bar_format="{l_bar}{bar}| {n:.0f}/{total:.0f} s") as bar,
    ):
        for make in makers:
            try:
                workload = make()
                first = _first_contact(client, workload, settings, bar)
            except UserError as error:
                if isinstance(error, ServingError) and error.code not in _REFUSALS:
                    raise
                skipped.append({"name": workload.name, "length": workload.length, "reason": str(error)})
                bar.write(f"skipped {workload.name}: {error}")
                bar.update(len(all_loads) * (settings.warmup_seconds + settings.seconds))
                continue
            for load in all_loads:
                bar.set_description(f"{workload.name}, {load.name}")
                points.append(measure(workers, workload, load, first, settings, bar.update))
    return points, skipped


def _first_contact(client: Client, workload: Workload, settings: Settings, bar: tqdm) -> Probe:
    bar.set_description(f"{workload.name}, first answers")
    return probe(client, workload, settings.check)


def _plain_settings(settings: Settings) -> dict:
    plain = {name: value for name, value in vars(settings).items() if name not in ("connection", "extra")}
    return {**plain, "tls": settings.connection.tls, "compression": settings.connection.compression}
