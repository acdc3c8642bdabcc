"""Progress with ETA, readable on a terminal and in a log file."""

import sys

from tqdm import tqdm


def progress_bar(total: float | None, unit: str, description: str, initial: int = 0, **kwargs) -> tqdm:
    """A tqdm bar on stderr that redraws twice a second on a terminal, every 15 s elsewhere."""
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(
        total=total,
        unit=unit,
        desc=description,
        initial=initial,
        mininterval=interval,
        maxinterval=interval,
        dynamic_ncols=True,
        **kwargs,
    )
