"""Measures the latency of a model behind TensorFlow Serving, or compares two such reports.

python -m serving.benchmark --target=127.0.0.1:8500 --model=sst2 --output_dir=report
python -m serving.benchmark compare A/report.json B/report.json
"""

import sys

from serving.benchmark import compare, table
from serving.benchmark.report import write_report
from serving.benchmark.run import INTERRUPTED, run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from tfrecords.base.errors import UserError
from tfrecords.base.files import make_output_dir
from tfrecords.base.script import run_main, say_next


def main(settings: BenchmarkSettings) -> None:
    """Measures, and writes the report into --output_dir."""
    output_dir = make_output_dir(settings.output_dir)
    report = run_benchmark(settings)
    names = write_report(report, output_dir)
    print(table.console_text(report))
    print(f"written to {output_dir}: {', '.join(names)}")
    say_next(f"python -m serving.benchmark compare {output_dir}/report.json ANOTHER/report.json")
    if report["ended_early"] == INTERRUPTED:
        raise KeyboardInterrupt
    if report["ended_early"]:
        raise UserError(f"ended early, and the report holds the points measured till then: {report['ended_early']}")


def run() -> None:
    """Runs the command."""
    if sys.argv[1:2] == ["compare"]:
        # absl refuses words that are not flags, so they are removed first.
        paths = sys.argv[2:]
        del sys.argv[1:]
        run_main(lambda: compare.main(paths))
    else:
        run_main(main, BenchmarkSettings)


if __name__ == "__main__":
    run()
