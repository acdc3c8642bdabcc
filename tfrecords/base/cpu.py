"""What this machine's CPU has, as Linux says it."""

import os
from pathlib import Path

CPU_INFO = "/proc/cpuinfo"
# Another file lets tests and exports pass for another CPU (BUILD.md); servables read CPU_INFO all the same.
OWN_CPU_INFO = Path(os.environ.get("ALBERT_TF_CPUINFO", CPU_INFO))


def cpu_flags(cpu_info: Path = OWN_CPU_INFO) -> set[str]:
    """Reads the flags as Linux names them for x86; none where there is no such file, or no such line in it."""
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def has_only_avx2(cpu_info: Path = OWN_CPU_INFO) -> bool:
    """Says whether the CPU has AVX2 and no AVX-512: there TensorFlow by itself multiplies by Eigen, not by oneDNN."""
    found = cpu_flags(cpu_info)
    return "avx2" in found and "avx512f" not in found


def train_by_onednn(cpu_info: Path = OWN_CPU_INFO) -> None:
    """Lets a TensorFlow that is not yet started multiply by oneDNN, unless TF_ENABLE_ONEDNN_OPTS says what it should.

    By itself it does so from AVX-512 on. With AVX2 alone Eigen takes three to four times as long for attention's many
    small products, and little longer for large ones: docs/results/training_speed.md.
    """
    if has_only_avx2(cpu_info):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
