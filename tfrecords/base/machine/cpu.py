"""Reads the CPU's features from Linux."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

CPU_INFO = "/proc/cpuinfo"
# Another file lets tests and exports pass for another CPU (BUILD.md); servables read CPU_INFO all the same.
OWN_CPU_INFO = Path(os.environ.get("ALBERT_TF_CPUINFO", CPU_INFO))


def cpu_flags(cpu_info: Path = OWN_CPU_INFO) -> set[str]:
    """Returns x86 CPU features by Linux names such as avx2; empty on other machines."""
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def bfloat16_flags(cpu_info: Path = OWN_CPU_INFO) -> list[str]:
    """Returns which of amx_bf16 and avx512_bf16 the CPU has, sorted; either multiplies bfloat16 in hardware."""
    return sorted({"amx_bf16", "avx512_bf16"} & cpu_flags(cpu_info))


def has_only_avx2(cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Whether the CPU has AVX2 and no AVX-512; TensorFlow then uses Eigen, not oneDNN, by default."""
    found = cpu_flags(cpu_info)
    return "avx2" in found and "avx512f" not in found


def train_by_onednn(cpu_info: Path = OWN_CPU_INFO) -> None:
    """Makes TensorFlow use oneDNN on CPUs with AVX2 and no AVX-512; call it before TensorFlow starts.

    See docs/results/training_speed.md. TF_ENABLE_ONEDNN_OPTS has priority.
    """
    if has_only_avx2(cpu_info):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@functools.cache
def cores(root: Path = Path("/")) -> int:
    """Returns the CPU cores that this process may use, by affinity and quotas of cgroups: rounded down, at least 1.

    `root` is where the files of Linux are. They are read once.
    """
    return max(1, min([_affinity(), *_quotas(root)]))


def limited_cores() -> str:
    """Returns a text such as `1 of 2 cores (the container's limit)`, empty where no quota limits this process."""
    return f"{cores()} of {_affinity()} cores (the container's limit)" if cores() < _affinity() else ""


def limit_libraries() -> None:
    """Makes TensorFlow and NumPy start as many threads as there are cores in a quota, which they do not read.

    Call it before they are imported. Their own variables, and numbers given to TensorFlow later, have priority.
    """
    if limited_cores():
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, str(cores()))


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[int]:
    for line in _words_of(root / "proc/self/cgroup", "\n"):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Some kernels say cpuacct,cpu where the folder is cpu,cpuacct; a link cpu leads to it.
        for name in {controllers, controllers and "cpu"}:
            # In a container the files of its own group are often at the top.
            group = root / "sys/fs/cgroup" / name
            for folder in (group / path.lstrip("/"), *(group / path.lstrip("/")).parents):
                limits = _words_of(folder / "cpu.max") or [
                    word for name in ("quota", "period") for word in _words_of(folder / f"cpu.cfs_{name}_us")
                ]
                if len(limits) == 2 and limits[0].isdecimal():
                    yield int(limits[0]) // int(limits[1])
                if folder == group:
                    break


def _words_of(path: Path, separator: str | None = None) -> list[str]:
    try:
        return [word for word in path.read_text().split(separator) if word]
    except OSError:
        return []
