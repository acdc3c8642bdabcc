"""The report on a console, and as CSV."""

import csv
import io

from serving.benchmark.statistics import PERCENTILES, percentile_name

_COLUMNS = [percentile_name(percent) for percent in PERCENTILES]


def milliseconds(value: float | None) -> str:
    """Three significant digits; '-' for a percentile that too few samples stand behind."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def console_table(report: dict) -> str:
    rows = [["workload", "arrival", *_COLUMNS, "max", "req/s", "verdict"]]
    for point in report["points"]:
        latency = point["latency_ms"]
        name, arrival = point["name"].split(", ", 1)
        figures = [milliseconds(latency[column]) for column in (*_COLUMNS, "max")]
        rows.append([name, arrival, *figures, milliseconds(point["requests_per_second"]), verdict(point)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(_align(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths))) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _align(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 or column == len(_COLUMNS) + 4 else cell.rjust(width)


def verdict(point: dict) -> str:
    """What to know before quoting the point, in a few words."""
    words = []
    if not point["valid"]:
        words.append("INVALID: the generator fell behind")
    errors = sum(error["count"] for error in point["errors"].values())
    if errors:
        words.append(f"{errors} errors ({', '.join(point['errors'])})")
    if point["answers"]["wrong"]:
        words.append(f"{point['answers']['wrong']} WRONG ANSWERS")
    words.append({True: "stable", False: "UNSTABLE", None: "few samples"}[point["stable"]])
    return ", ".join(words)


def to_csv(report: dict) -> str:
    """One row a point, units in the column names."""
    text = io.StringIO()
    writer = None
    for point in report["points"]:
        row = {name: point[name] for name in ("length", "unit", "batch", "arrival", "clients", "rate", "requests")}
        row |= {f"{name}_ms": value for name, value in point["latency_ms"].items()}
        row |= {
            name: point[name]
            for name in ("requests_per_second", "examples_per_second", "goodput_per_second", "first_call_ms")
        }
        row["errors"] = sum(error["count"] for error in point["errors"].values())
        row["wrong_answers"] = point["answers"]["wrong"]
        row |= {name: point[name] for name in ("valid", "stable")}
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    return text.getvalue()
