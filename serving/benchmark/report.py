"""Writes a report's files."""

from pathlib import Path

from serving.benchmark import page, plots, table
from tfrecords.base.files import replacing, write_json


def write_report(report: dict, output_dir: Path) -> list[str]:
    """report.json, report.csv, the plots and report.html, each whole or not there; returns their names."""
    images = plots.all_plots(report)
    files = {"report.csv": table.to_csv(report).encode(), **images, "report.html": page.page(report, images).encode()}
    write_json(output_dir / "report.json", report)
    for name, content in files.items():
        with replacing(output_dir / name) as temporary:
            temporary.write_bytes(content)
    return ["report.json", *files]
