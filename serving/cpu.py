"""What this machine's CPU has, as far as exports depend on it."""

from pathlib import Path

# What a manifest says of exports that end a server without it.
AVX512 = "AVX-512"


def has_bfloat16(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies bfloat16 in hardware (x86 only; elsewhere oneDNN's kernels are not there)."""
    return bool({"avx512_bf16", "amx_bf16"} & _flags(cpu_info))


def has_avx512(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether oneDNN has bfloat16 products for the CPU, fast or not. Where it has not, they abort the process."""
    return {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= _flags(cpu_info)


def _flags(cpu_info: Path) -> set[str]:
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
