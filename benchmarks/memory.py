"""What a process holds, from Linux's /proc."""

from pathlib import Path


def memory_mib(field: str = "VmRSS", process: int | str = "self") -> float:
    """MiB of a process by a field of its status, such as VmRSS (resident), VmHWM (its peak) or RssAnon."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(fields[field].split()[0]) / 1024


def pss_mib(process: int | str = "self") -> float:
    """MiB of a process, of pages that several processes share its part: these can be added up."""
    (line,) = [line for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines() if line[:4] == "Pss:"]
    return int(line.split()[1]) / 1024
