"""Our single-stream and server figures beside MLPerf's LoadGen, both driving the same kind of stub at the same server.

pip install mlcommons-loadgen==6.0.17
python -m benchmarks.client_loadgen

The server answers after a fixed sleep, so that what differs is the generators. They take turns, since the machine's
mood changes slower than that. `own sleep`: what one such sleep takes here, the floor of both.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.machine import machine_line
from benchmarks.timing import median_ms
from serving.benchmark import statistics
from serving.benchmark.load import Driver, LoadShare, poisson_arrivals
from serving.benchmark.stand_in import StandIn, constant_answer
from serving.client import Connection
from serving.wire import protos

SERVICE_S = 0.005
SECONDS = 4.0
RATE = 60.0
ROUNDS = 5
PERCENTILES = (50.0, 90.0)

Figures = dict[str, float]


def main() -> None:
    print(machine_line())
    own_sleep = median_ms(lambda: time.sleep(SERVICE_S), 100)
    print(f"service {SERVICE_S * 1000:g} ms; own sleep {own_sleep:.3f} ms; {ROUNDS} turns of {SECONDS:g} s each")
    for scenario, (ours, theirs) in compare().items():
        for name in ours:
            ratio = ours[name] / theirs[name]
            print(f"{scenario:14s} {name}: ours {ours[name]:.3f} ms, LoadGen {theirs[name]:.3f} ms, ratio {ratio:.3f}")


def compare(rounds: int = ROUNDS) -> dict[str, tuple[Figures, Figures]]:
    """Scenario -> (our percentiles, LoadGen's), ms, each the median over the rounds."""
    answer = constant_answer()

    def serve(request, context):
        time.sleep(SERVICE_S)
        return answer

    results = {}
    with StandIn(serve, threads=8) as server:
        connection = Connection(server.target, attempts=1)
        for scenario in ("single_stream", "server"):
            turns = [(_ours(connection, scenario, i), _loadgen(connection, scenario, i)) for i in range(rounds)]
            results[scenario] = tuple(_medians([turn[side] for turn in turns]) for side in (0, 1))
    return results


def _medians(turns: list[Figures]) -> Figures:
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


def _ours(connection: Connection, scenario: str, seed: int) -> Figures:
    driver = Driver(connection)
    load = {"due": poisson_arrivals(RATE, SECONDS, seed)} if scenario == "server" else {"clients": 1}
    driver.run(LoadShare([b""], [None], 10.0, time.perf_counter(), 0.5, clients=1))
    samples = driver.run(LoadShare([b""], [None], 10.0, time.perf_counter(), SECONDS, **load))
    driver.close()
    ordered = np.sort(samples.latencies_ms)
    return {f"p{p:g}": statistics.percentile(ordered, p) for p in PERCENTILES}


def _loadgen(connection: Connection, scenario: str, seed: int) -> Figures:
    import mlperf_loadgen as loadgen

    channel = connection.open(own_connection=True)
    stub = channel.unary_unary(protos.PREDICT)
    for _ in range(50):
        stub(b"")

    def issue(queries) -> None:
        for query in queries:
            response = loadgen.QuerySampleResponse(query.id, 0, 0)
            if scenario == "server":
                stub.future(b"", timeout=10.0).add_done_callback(
                    lambda call, response=response: loadgen.QuerySamplesComplete([response])
                )
            else:
                stub(b"", timeout=10.0)
                loadgen.QuerySamplesComplete([response])

    under_test = loadgen.ConstructSUT(issue, lambda: None)
    samples = loadgen.ConstructQSL(64, 64, lambda indices: None, lambda indices: None)
    with tempfile.TemporaryDirectory() as folder:
        loadgen.StartTestWithLogSettings(
            under_test, samples, _loadgen_settings(loadgen, scenario, seed), _log_settings(loadgen, folder)
        )
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    loadgen.DestroyQSL(samples)
    loadgen.DestroySUT(under_test)
    channel.close()
    return {f"p{p:g}": _summary_ns(summary, f"{p:.2f} percentile latency (ns)") / 1e6 for p in PERCENTILES}


def _loadgen_settings(loadgen, scenario: str, seed: int):
    settings = loadgen.TestSettings()
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = int(SECONDS * 1000)
    settings.max_duration_ms = int(SECONDS * 2000)
    settings.min_query_count = 1
    settings.schedule_rng_seed = 1000 + seed
    if scenario == "server":
        settings.scenario = loadgen.TestScenario.Server
        settings.server_target_qps = RATE
        settings.server_target_latency_ns = 100_000_000
    else:
        settings.scenario = loadgen.TestScenario.SingleStream
        settings.single_stream_expected_latency_ns = int(SERVICE_S * 1e9)
    return settings


def _log_settings(loadgen, folder: str):
    output = loadgen.LogOutputSettings()
    output.outdir = folder
    output.copy_summary_to_stdout = False
    settings = loadgen.LogSettings()
    settings.log_output = output
    settings.enable_trace = False
    return settings


def _summary_ns(summary: str, name: str) -> float:
    line = next(line for line in summary.splitlines() if line.startswith(name))
    return float(line.rsplit(":", 1)[1])


if __name__ == "__main__":
    main()
