"""What a process holds, from Linux's /proc."""

from pathlib import Path


def memory_mib(field: str = "VmRSS", process: int | str = "self") -> float:
    """MiB of a process by a field of its status, such as VmRSS (resident), VmHWM (its peak) or RssAnon."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(fields[field].split()[0]) / 1024
