"""The machine that a benchmark runs on, in a line."""

from serving.benchmark.report import environment


def machine_line() -> str:
    """Names the CPU, the cores that this process may use, and the load as it begins."""
    here = environment()
    return f"{here['cpu']}, {here['usable_cores']} cores, load {here['load_average_1min_at_start']}"
