"""Measures the latency of a model behind TensorFlow Serving.

python -m serving.benchmark --target=127.0.0.1:8500 --model=sst2 --output_dir=report
"""

import os
from pathlib import Path

from absl import flags

from serving.benchmark import table
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import ARRIVALS, Settings
from serving.client.channel import Connection
from tfrecords.errors import UserError
from tfrecords.files import make_output_dir, replacing, write_json
from tfrecords.script import run_main

_TARGET = flags.DEFINE_string("target", "127.0.0.1:8500", "HOST:PORT of the server's gRPC port.")
_MODEL = flags.DEFINE_string("model", "default", "Name of the model.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "benchmark", "Folder for the report: JSON, CSV, plots, HTML.")
_ARRIVAL = flags.DEFINE_enum("arrival", "closed", ARRIVALS, "How requests arrive.")
_CLIENTS = flags.DEFINE_list("clients", ["1"], "Closed loop: numbers of clients, each a point.")
_RATES = flags.DEFINE_list("rate", [], "Open loop: requests per second, each a point.")
_LENGTHS = flags.DEFINE_list("lengths", ["12", "32", "64", "128", "256", "384", "512"], "Tokens (text models: words).")
_BATCHES = flags.DEFINE_list("batches", ["1"], "Rows a request, each a point.")
_SECONDS = flags.DEFINE_float("seconds", 10.0, "Seconds measured a point.")
_WARMUP = flags.DEFINE_float("warmup_seconds", 1.0, "Seconds of the same load before the clock starts.")
_WINDOWS = flags.DEFINE_integer("windows", 5, "Parts of a point that are compared for stability.")
_BOUND = flags.DEFINE_float("bound_ms", None, "Latency bound; answers within it are goodput.")
_TIMEOUT = flags.DEFINE_float("timeout_s", 30.0, "Seconds to wait for an answer.")
_PROCESSES = flags.DEFINE_integer("processes", 1, "Generator processes.")
_SEED = flags.DEFINE_integer("seed", 0, "Of request contents and Poisson arrivals.")


def main() -> None:
    settings = Settings(
        connection=Connection(_TARGET.value, attempts=1),
        model=_MODEL.value,
        arrival=_ARRIVAL.value,
        clients=_numbers(_CLIENTS, int),
        rates=_numbers(_RATES, float),
        lengths=_numbers(_LENGTHS, int),
        batches=_numbers(_BATCHES, int),
        seconds=_SECONDS.value,
        warmup_seconds=_WARMUP.value,
        windows=_WINDOWS.value,
        bound_ms=_BOUND.value,
        timeout_s=_TIMEOUT.value,
        processes=_PROCESSES.value,
        seed=_SEED.value,
    )
    output_dir = make_output_dir(_OUTPUT_DIR.value)
    report = run_benchmark(settings)
    write_report(report, output_dir)
    print(table.console_table(report))
    print(f"written to {output_dir}: report.json, report.csv, latency.png")


def write_report(report: dict, output_dir: Path) -> None:
    # Imported after measuring: matplotlib's start-up is no part of a refused target's error.
    from serving.benchmark import plots

    write_json(output_dir / "report.json", report)
    _write(output_dir / "report.csv", table.to_csv(report).encode())
    _write(output_dir / "latency.png", plots.latency_plot(report))


def _write(path: str | os.PathLike, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _numbers(flag: flags.FlagHolder, kind: type) -> tuple:
    try:
        return tuple(kind(item) for item in flag.value)
    except ValueError as error:
        raise UserError(f"--{flag.name}={','.join(flag.value)} is not a comma-separated list of numbers") from error


def run() -> None:
    run_main(main)


if __name__ == "__main__":
    run()
