"""What the quickstart prints at its end: sizes, accuracy, latency, and words that the model filled in."""

import json
from pathlib import Path

from scripts.learned import table
from scripts.stages import Road


def print_summary(work: Path, road: Road) -> None:
    print("\n" + "=" * 78)
    _print_sizes(work)
    for name in ("ids", "text"):
        _print_latency(name, json.loads((work / "benchmark" / name / "report.json").read_text()))
    print("\nFiles")
    for title, path in (
        ("loss by step", f"{work}/loss.png"),
        ("TensorBoard logs", f"{work}/run/tensorboard   (.venv/bin/tensorboard --logdir {work}/run/tensorboard)"),
        ("SavedModels", f"{work}/models/ids and {work}/models/text"),
        ("latency plots", f"{work}/benchmark/ids/latency.png and {work}/benchmark/text/latency.png"),
    ):
        print(f"  {title:20}{path}")
    print(f"\nEach stage alone, from {Path.cwd()}")
    for title, command in road.commands:
        print(f"  # {title}\n  {command}")
    print("\n" + "=" * 78)
    _print_accuracy(json.loads((work / "evaluation.json").read_text()))
    print(table(json.loads((work / "filled_words.json").read_text())))


def _print_accuracy(figures: dict) -> None:
    print(f"{'Held-out documents':34}{'this model':>12}{'trivial baseline':>22}")
    for key, label, baseline in (
        ("masked_lm_accuracy", "masked-LM accuracy", "most frequent token"),
        ("sentence_order_accuracy", "sentence-order accuracy", "majority label"),
    ):
        model, trivial = figures["model"][key], figures["baseline"][key]
        print(f"  {label:32}{model:>12.1%}{trivial:>22.1%}  ({baseline})")
    print("  The order of sentences is learned from far more text and steps than a quick start has.")


def _print_sizes(work: Path) -> None:
    print("\nSizes")
    for label, path in (
        ("examples", work / "data"),
        ("checkpoint (model.keras)", work / "run" / "model.keras"),
        ("SavedModel, ids", work / "models" / "ids"),
        ("SavedModel, text", work / "models" / "text"),
    ):
        paths = path.rglob("*") if path.is_dir() else [path]
        print(f"  {label:32}{sum(p.stat().st_size for p in paths if p.is_file()) / 1e6:>9.2f} MB")


def _print_latency(name: str, report: dict) -> None:
    print(f"\nOver gRPC, {name} inputs, one request at a time, milliseconds")
    print(f"  {'length':>8}{'p50':>9}{'p90':>9}{'p99':>9}{'requests/s':>13}")
    for point in report["points"]:
        # A percentile is null when too few requests stand behind it.
        latency = [point["latency_ms"].get(key) for key in ("p50", "p90", "p99")]
        cells = "".join(f"{'-' if value is None else format(value, '.2f'):>9}" for value in latency)
        print(f"  {point['length']:>8}{cells}{point['requests_per_second']:>13.1f}")
