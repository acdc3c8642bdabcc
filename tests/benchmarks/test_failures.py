"""A benchmark says first what it cannot do, compares the same rows, and does not take old figures for new."""

import pytest

from benchmarks.latency import __main__ as latency
from serving.benchmark.report import environment
from tests.refusals import refused
from tfrecords.base import files


@pytest.fixture
def latencies(tmp_path, monkeypatch):
    """Runs the report's measuring with everything made up; which models were measured."""
    measured = []

    def measure(name, *_):
        measured.append(name)
        return {"model": name, "environment": environment()}

    monkeypatch.setattr(latency, "topics_and_vocabulary", lambda work, vocab_size: (work, work))
    monkeypatch.setattr("benchmarks.latency.measure.measure", measure)
    monkeypatch.setattr("benchmarks.latency.measure.make_model", lambda name, folder: folder)
    monkeypatch.setattr(
        "benchmarks.latency.measure.export_model", lambda model, variant, base: base.mkdir(parents=True)
    )

    def run(**others):
        given = {"work_dir": str(tmp_path), "models": "albert_tiny,albert_base_v2"} | others
        measured.clear()
        latency.measured(latency.LatencySettings(**given))
        return list(measured)

    return run


def test_latencies_are_kept_while_they_are_of_the_same_settings_machine_and_versions(latencies, tmp_path):
    every = ["albert_tiny"] * 3 + ["albert_base_v2"] * 3
    assert latencies() == every and latencies() == []
    assert latencies(seconds=1.0) == every and latencies(seconds=1.0) == []
    assert latencies(seconds=0.0) == []
    first, *_ = sorted(tmp_path.glob("albert_tiny/*/figures.json"))
    figures = files.read_json(first)
    for changed in ({"cpu": "another"}, {"packages": {"tensorflow": "1.0"}}):
        files.write_json(first, figures | {"environment": figures["environment"] | changed})
        with refused("of several machines or versions"):
            latencies(seconds=0.0)
        assert latencies(seconds=1.0) == ["albert_tiny"]
