"""Whether a difference is called real when it is, and not when it is not."""

import copy
import json

import numpy as np
import pytest

from serving.benchmark import compare, statistics
from tfrecords.base.errors import UserError


def report(random, scale=1.0, drift=0.0, length=12, size=150, windows=10):
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
    random = np.random.default_rng(0)
    slow, fast = report(random, 1.1), report(random)
    assert verdicts(fast, slow)["p50"] == "B slower"
    assert verdicts(slow, fast)["p50"] == "B faster"
    (median, *_) = compare.compare(fast, slow)
    assert median.ratio == pytest.approx(1.1, abs=0.03) and median.low < 1.1 < median.high


def test_a_server_against_itself_is_seldom_called_different():
    random = np.random.default_rng(1)
    pairs = [tuple(report(random, size=40, windows=6) for _ in "ab") for _ in range(20)]
    different = sum(verdicts(*pair)["p50"] != "no real difference" for pair in pairs)
    # At 5 % each, more than 5 of 20 happen about three times in ten thousand runs.
    assert different <= 5


def test_unsteady_runs_are_not_trusted():
    random = np.random.default_rng(2)
    unsteady, steady = report(random, 1.6, drift=0.2), report(random)
    assert unsteady["points"][0]["stable"] is False
    assert verdicts(steady, unsteady)["p50"] == "B slower, but a run was unsteady: repeat"
    assert any("unstable" in note for note in compare.warnings(steady, unsteady))


def test_percentiles_without_samples_are_not_compared():
    random = np.random.default_rng(3)
    assert set(verdicts(report(random, size=20), report(random))) == {"p50", "p90"}


def test_other_machines_errors_and_lag_are_noted():
    a = report(np.random.default_rng(4))
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
    random = np.random.default_rng(5)
    with pytest.raises(UserError, match="no point in common"):
        compare.compare(report(random, length=12), report(random, length=64))
    (tmp_path / "other.json").write_text(json.dumps({"tool": "another"}))
    with pytest.raises(UserError, match="not a report of this benchmark"):
        compare.main([str(tmp_path / "other.json")] * 2)
    with pytest.raises(UserError, match="takes two reports"):
        compare.main(["one.json"])


def test_text_names_both_figures_and_the_verdict(tmp_path, capsys):
    random = np.random.default_rng(6)
    paths = []
    for name, scale in (("a", 1.0), ("b", 2.0)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(report(random, scale)))
        paths.append(str(path))
    compare.main(paths)
    printed = capsys.readouterr().out
    assert "12 tokens x 1, closed loop, 1 client" in printed and "B slower" in printed and "B / A" in printed
