"""Whether a difference is called real when it is, and not when it is not."""

import copy
import json

import numpy as np
import pytest

from serving.benchmark import compare, statistics
from tfrecords.base.errors import UserError


def report(seed, scale=1.0, drift=0.0, length=12, size=150, windows=10):
    random = np.random.default_rng(seed)
    drawn = [scale * random.lognormal(2 + drift * random.normal(), 0.3, size) for _ in range(windows)]
    verdict = statistics.stability(drawn)
    point = {
        "name": f"{length} tokens x 1, closed loop, 1 client", "length": length, "unit": "tokens", "batch": 1,
        "arrival": "closed", "clients": 1, "rate": None, "valid": True, "invalid_because": [], "stable": verdict.stable,
        "stability": verdict.reason, "errors": {}, "answers": {"wrong": 0},
        "latency_ms": statistics.summarise(np.concatenate(drawn)),
        "windows": [{"hdr_microseconds": statistics.encode_histogram(window)} for window in drawn],
    }  # fmt: skip
    environment = {"cpu": "c", "usable_cores": 2, "memory_gib": 8}
    return {"tool": "albert-tf serving.benchmark", "environment": environment, "points": [point]}


def verdicts(a, b):
    return {d.percentile: d.verdict for d in compare.compare(a, b)}


def test_a_ten_percent_difference_is_found_and_its_direction():
    slow, fast = report(0, 1.1), report(1)
    assert verdicts(fast, slow)["p50"] == "B slower"
    assert verdicts(slow, fast)["p50"] == "B faster"
    (median, *_) = compare.compare(fast, slow)
    assert median.ratio == pytest.approx(1.1, abs=0.03) and median.low < 1.1 < median.high


def test_a_server_against_itself_is_seldom_called_different():
    runs = [report(seed, size=40, windows=6) for seed in range(40)]
    different = sum(verdicts(a, b)["p50"] != "no real difference" for a, b in zip(runs[:20], runs[20:]))
    # At 5 % each, more than 5 of 20 happen about three times in ten thousand runs.
    assert different <= 5


def test_unsteady_runs_are_not_trusted():
    unsteady, steady = report(2, 1.6, drift=0.2), report(3)
    assert unsteady["points"][0]["stable"] is False
    assert verdicts(steady, unsteady)["p50"] == "B slower, but a run was unsteady: repeat"
    assert any("unstable" in note for note in compare.warnings(steady, unsteady))


def test_percentiles_without_samples_are_not_compared():
    assert set(verdicts(report(0, size=20), report(1))) == {"p50", "p90"}


def test_other_machines_errors_and_lag_are_noted():
    a = report(4)
    b = copy.deepcopy(a)
    b["environment"]["cpu"] = "another"
    b["points"][0] |= {
        "valid": False,
        "invalid_because": ["the generator fell behind"],
        "errors": {"UNAVAILABLE": {"count": 1, "message": ""}},
    }
    notes = " | ".join(compare.warnings(a, b))
    assert "cpu is c in A and another in B" in notes and "generator fell behind" in notes and "errors" in notes
    assert compare.warnings(a, a) == []


def test_reports_that_share_nothing_cannot_be_compared(tmp_path):
    with pytest.raises(UserError, match="no point in common"):
        compare.compare(report(0, length=12), report(0, length=64))
    (tmp_path / "other.json").write_text(json.dumps({"tool": "another"}))
    with pytest.raises(UserError, match="not a report of this benchmark"):
        compare.main([str(tmp_path / "other.json")] * 2)
    with pytest.raises(UserError, match="takes two reports"):
        compare.main(["one.json"])


def test_text_names_both_figures_and_the_verdict(tmp_path, capsys):
    paths = tmp_path / "a.json", tmp_path / "b.json"
    for scale, path in enumerate(paths, 1):
        path.write_text(json.dumps(report(6, scale)))
    compare.main([str(path) for path in paths])
    printed = capsys.readouterr().out
    assert "12 tokens x 1, closed loop, 1 client" in printed and "B slower" in printed and "B / A" in printed
