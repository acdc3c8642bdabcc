"""Measures the latency of a model behind TensorFlow Serving.

python -m serving.benchmark --target=127.0.0.1:8500 --model=sst2 --output_dir=report
python -m serving.benchmark --target=127.0.0.1:8500 --model=sst2 --find_rate --bound_ms=100
"""

from serving.benchmark.report import console_text, write_report
from serving.benchmark.run import INTERRUPTED, run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.base.script import run_main


def main(settings: BenchmarkSettings) -> None:
    """Measures, and writes the report into --output_dir."""
    output_dir = make_output_dir(settings.output_dir)
    report = run_benchmark(settings)
    names = write_report(report, output_dir)
    print(console_text(report))
    print(f"written to {output_dir}: {', '.join(names)}")
    if report["ended_early"] == INTERRUPTED:
        raise KeyboardInterrupt
    if report["ended_early"]:
        raise UserError(f"ended early, and the report holds the points measured till then: {report['ended_early']}")


def run() -> None:
    """Runs the command."""
    run_main(main, BenchmarkSettings)


if __name__ == "__main__":
    run()
