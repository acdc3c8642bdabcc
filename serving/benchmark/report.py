"""Writes a report's files, and describes the machine."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from serving.benchmark import table
from tfrecords.base import files
from tfrecords.base.machine.cpu import cores

_PACKAGES = ("albert-tf", "grpcio", "protobuf", "numpy", "tensorflow", "keras", "tensorflow-text")


def environment() -> dict[str, Any]:
    """Describes CPU, memory, load, versions and the command line."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cpu": _cpu_name(),
        "usable_cores": cores(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average_1min_at_start": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_report(report: dict[str, Any], output_dir: Path) -> list[str]:
    """Writes report.json, report.csv and latency.png; returns their names."""
    # Imported after measuring: a refused target should not wait for matplotlib.
    from serving.benchmark.plot import plot_latency

    contents = {"report.csv": table.to_csv(report).encode(), "latency.png": plot_latency(report)}
    files.write_json(output_dir / "report.json", report)
    for name, content in contents.items():
        files.write(output_dir / name, content)
    return ["report.json", *contents]
