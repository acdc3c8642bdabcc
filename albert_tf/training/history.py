"""`history.csv`: the figures of a run, a row at a time."""

import csv
from pathlib import Path

from tfrecords.base import files


class HistoryFile:
    """Rows of figures by step. Rows of an earlier start past the step resumed from are dropped."""

    def __init__(self, path: Path, first_step: int):
        self.path = path
        self.rows: list[dict] = []
        if path.is_file():
            with open(path, newline="", encoding="utf-8") as file:
                self.rows = [row for row in csv.DictReader(file) if int(row["step"]) <= first_step]

    def append(self, step: int, seconds: float, figures: dict[str, float]) -> None:
        """Adds a row and writes the file anew; figures have six digits."""
        row = {"step": step, "seconds": round(seconds, 3)}
        self.rows.append(row | {key: f"{float(value):.6g}" for key, value in figures.items()})
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        with files.replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)
