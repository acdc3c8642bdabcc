"""Times calls: one, the median of many, and several that take turns, so that a machine's drift meets all alike."""

import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]


def seconds_of(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def median_ms(call: Call, calls: int) -> float:
    """The median of so many calls, in milliseconds."""
    return 1e3 * statistics.median(seconds_of(call) for _ in range(calls))


def medians_in_turns(turns: Mapping[str, Call], rounds: int, calls: int) -> list[float]:
    """Milliseconds of each: the median over the rounds of the median of so many calls in a row."""
    medians = [[median_ms(call, calls) for call in turns.values()] for _ in range(rounds)]
    return [statistics.median(found) for found in zip(*medians, strict=True)]


def seconds_in_turns(
    turns: Mapping[str, Call], rounds: int, warm_up: int = 1, pause_s: Callable[[str], float] = lambda name: 0.0
) -> dict[str, list[float]]:
    """Seconds of each in each round, after some for warming up; `pause_s`: of rest after a call, by its name."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(warm_up + rounds):
        for name, call in turns.items():
            seconds = seconds_of(call)
            if turn >= warm_up:
                times[name].append(seconds)
            time.sleep(pause_s(name))
    return times


def medians_ms(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
