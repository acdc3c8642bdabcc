"""Progress with ETA, readable on a terminal and in a log file."""

import sys

from tqdm import tqdm


def progress_bar(iterable=None, **settings) -> tqdm:
    """A tqdm bar on stderr that redraws twice a second on a terminal, every 15 s elsewhere; `settings` as tqdm's."""
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(
        iterable,
        file=sys.stderr,
        mininterval=interval,
        maxinterval=interval,
        dynamic_ncols=True,
        **settings,
    )
