"""Compares two reports' latencies.

python -m serving.benchmark compare A/report.json B/report.json
"""

from dataclasses import dataclass

import numpy as np

from serving.benchmark import statistics
from serving.benchmark.schema import BenchmarkReport, Point
from serving.benchmark.table import align, figure
from tfrecords.base.errors import UserError
from tfrecords.base.files import read_json

_COMPARED = (50.0, 90.0, 99.0)
# Smaller differences may be real, but do not matter.
NEGLIGIBLE = 0.01
# The fields that two comparable points share.
_KEY = ("length", "unit", "batch", "protocol", "arrival", "clients", "rate")


@dataclass(frozen=True)
class Difference:
    """Two latencies at one percentile, and their ratio with its 95 % interval; `sound`: both runs were steady."""

    name: str
    percentile: str
    a_ms: float
    b_ms: float
    ratio: float
    low: float
    high: float
    sound: bool

    @property
    def verdict(self) -> str:
        if self.low <= 1 <= self.high:
            return "no real difference"
        if abs(self.ratio - 1) < NEGLIGIBLE:
            return "real, but under 1 %"
        changed = "B slower" if self.ratio > 1 else "B faster"
        return changed if self.sound else f"{changed}, but a run was unsteady: repeat"


def compare(a: BenchmarkReport, b: BenchmarkReport) -> list[Difference]:
    """Compares all percentiles and points that both reports have; raises UserError if there are none.

    The ratio's interval covers noise within runs, not a machine that is slower during a whole run.
    """
    theirs = {_key(point): point for point in b["points"]}
    pairs = [(point, theirs[_key(point)]) for point in a["points"] if _key(point) in theirs]
    if not pairs:
        raise UserError("the reports have no point in common; compare runs with the same lengths, batches and arrivals")
    return [difference for one, other in pairs for difference in _compare_points(one, other)]


def _key(point: Point) -> tuple:
    # Reports from before REST do not name their protocol.
    values = {"protocol": "grpc", **point}
    return tuple(values[name] for name in _KEY)


def _compare_points(a: Point, b: Point) -> list[Difference]:
    names = [statistics.percentile_name(percent) for percent in _COMPARED]
    latencies = [(name, a["latency_ms"][name], b["latency_ms"][name]) for name in names]
    if not any(a_ms and b_ms for _, a_ms, b_ms in latencies):
        return []
    resampled_a, resampled_b = (
        statistics.bootstrap_percentiles(_windows(point), _COMPARED, seed) for seed, point in enumerate((a, b))
    )
    intervals = np.percentile(resampled_b / resampled_a, [2.5, 97.5], axis=0).T.tolist()
    sound = all(point["valid"] and point["stable"] is not False for point in (a, b))
    return [
        Difference(a["name"], name, a_ms, b_ms, b_ms / a_ms, low, high, sound)
        for (name, a_ms, b_ms), (low, high) in zip(latencies, intervals, strict=True)
        if a_ms and b_ms
    ]


def _windows(point: Point) -> list[tuple[np.ndarray, np.ndarray]]:
    windows = [statistics.decode_histogram(window["hdr_microseconds"]) for window in point["windows"]]
    return [window for window in windows if len(window[0])]


def warnings(a: BenchmarkReport, b: BenchmarkReport) -> list[str]:
    """Returns other possible causes of a difference, such as another machine."""
    notes = []
    for name in ("cpu", "usable_cores", "memory_gib"):
        mine, other = a["environment"][name], b["environment"][name]
        if mine != other:
            notes.append(f"different machines: {name} is {mine} in A and {other} in B")
    for letter, report in (("A", a), ("B", b)):
        for point in report["points"]:
            if not point["valid"]:
                notes.append(f"{letter}, {point['name']}: invalid, {', '.join(point['invalid_because'])}")
            if point["stable"] is False:
                notes.append(f"{letter}, {point['name']}: unstable; {point['stability']}")
            if len(point.get("versions", {})) > 1:
                notes.append(f"{letter}, {point['name']}: answered by versions {' and '.join(point['versions'])}")
            if point["errors"] or point["answers"]["wrong"]:
                notes.append(f"{letter}, {point['name']}: errors or wrong answers; the latencies are of the good ones")
    return notes


def to_text(differences: list[Difference], notes: list[str]) -> str:
    """Returns a table and notes."""
    rows = [["point", "", "A ms", "B ms", "B / A", "95 % interval", "verdict"]]
    for d in differences:
        interval = f"{d.low:.3f} to {d.high:.3f}"
        rows.append([d.name, d.percentile, figure(d.a_ms), figure(d.b_ms), f"{d.ratio:.3f}", interval, d.verdict])
    return "\n".join([align(rows), *[f"note: {note}" for note in notes]])


def read_report(path: str) -> BenchmarkReport:
    """Reads a report.json; raises UserError for another file."""
    report = read_json(path)
    if not isinstance(report, dict) or report.get("tool") != "albert-tf serving.benchmark":
        raise UserError(f"'{path}' is not a report of this benchmark; give a report.json")
    return report


def main(paths: list[str]) -> None:
    """Compares two reports."""
    if len(paths) != 2:
        raise UserError("compare takes two reports: python -m serving.benchmark compare A.json B.json")
    a, b = map(read_report, paths)
    print(to_text(compare(a, b), warnings(a, b)))
