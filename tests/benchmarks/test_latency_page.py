"""The latency report's page says what its figures say."""

import json

import pytest

from benchmarks.latency.page import FAST, INT8, PLAIN, write_page

MACHINE = {
    "cpu": "a processor",
    "usable_cores": 2,
    "memory_gib": 24.0,
    "created": "2026-01-02T03:04:05",
    "python": "3.11.7",
    "packages": {"tensorflow": "2.21.0", "keras": "3.15.1", "grpcio": "1.85.1"},
    "commit": "abc1234",
    "load_average_1min_at_start": 0.5,
}


def figures(model, variant, milliseconds):
    point = {"in_process_ms": milliseconds, "grpc_ms": milliseconds + 1, "grpc_p90_ms": None}
    rows = {"in_process_rows_per_second": 3000 / milliseconds, "grpc_rows_per_second": 2000 / milliseconds}
    return {
        "model": model, "variant": variant, "environment": MACHINE, "mixed": rows, "parameters": 12e6, "gflop": 22.0,
        "megabytes": 47.0, "resident_mb": 90.0, "load_and_first_call_seconds": 1.5,
        "lengths": {"12": point | rows, "128": point | rows}
    }  # fmt: skip


@pytest.fixture
def measured():
    times = {
        "bert_base_uncased": (120.0, 70.0, 40.0),
        "albert_tiny": (8.0, 5.0, 4.0),
        "albert_base_v2": (118.0, 59.0, 29.5),
    }
    return [
        figures(model, variant, time)
        for model, three in times.items()
        for variant, time in zip((PLAIN, FAST, INT8), three, strict=True)
    ]


@pytest.fixture
def page_of(tmp_path):
    """page_of(figures): the text of their page."""

    def write(figures):
        write_page(figures, tmp_path / "latency.md")
        return (tmp_path / "latency.md").read_text()

    return write


def test_every_export_has_its_row_and_the_words_their_ratios(measured, page_of, tmp_path):
    text = page_of(measured)
    assert f"| albert_base_v2 | {FAST} | 47 | 90 | 1.5 | 59.0 | 60.0 | 50.8 |" in text
    assert text.count("\n| a") == 6 and text.count("\n| bert") == 3
    assert "takes 59 ms: 2 times as fast as the plain export" in text and "{" not in text
    assert "takes 30 ms and batches run 4 times as fast" in text
    assert "a processor, 2 cores" in text and "commit `abc1234`" in text
    assert json.loads((tmp_path / "latency/figures.json").read_text())["figures"] == measured
    assert (tmp_path / "latency/latency.png").read_bytes().startswith(b"\x89PNG")
