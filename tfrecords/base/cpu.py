"""Reads the CPU's features from Linux."""

import os
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
