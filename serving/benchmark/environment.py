"""Where and with what the figures were made."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

_PACKAGES = ("albert-tf", "grpcio", "protobuf", "numpy", "hdrhistogram", "tensorflow", "keras", "tensorflow-text")


def describe() -> dict:
    """CPU, memory, load, versions and the command line, as plain values. Only the machine of the generator is seen."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cpu": _cpu_name(),
        "usable_cores": len(os.sched_getaffinity(0)),
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
