"""Times calls: one, and several that take turns, so that a machine's drift meets all alike."""

import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]


def seconds_of(call: Call) -> float:
    """Returns how long one call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def medians_ms(turns: Mapping[str, Call], rounds: int, pause_s: Callable[[str], float]) -> dict[str, float]:
    """Returns each call's median over the rounds, after one for warming up; `pause_s` is the rest after a call."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(1 + rounds):
        for name, call in turns.items():
            seconds = seconds_of(call)
            if turn:
                times[name].append(seconds)
            time.sleep(pause_s(name))
    return {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
