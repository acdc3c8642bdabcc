"""Whole runs through the library: what a report holds, what its files look like; and the search for a rate."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.benchmark import report as reports
from serving.benchmark import run
from serving.benchmark.__main__ import main
from serving.benchmark.run import PRECISION, bracket, limit_of, run_benchmark, search
from serving.benchmark.settings import BenchmarkSettings
from serving.wire import protos
from serving.wire.tensors import read_tensor
from tests.refusals import lines, refused
from tests.serving.benchmark.conftest import Numbered
from tests.serving.gateway.conftest import wait_until
from tests.stand_in import IDS, StandIn

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def settings(server, **changes):
    quick = {"seconds": 0.4, "warmup_seconds": 0.0, "lengths": "8"}
    return BenchmarkSettings(target=server.target, **quick | changes)


def measured(behaviour=None, threads=4, inputs=IDS, **changes):
    with StandIn(behaviour, threads=threads, inputs=inputs) as server:
        return run_benchmark(settings(server, **changes))


def by_length(request, context):
    """As a model of 16 positions behind a server that goes away at the 32nd."""
    length = read_tensor(protos.PredictRequest.FromString(request).inputs["input_ids"]).shape[1]
    if length == 24:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "indices[0,16] = 16 is not in [0, 16)")
    if length == 32:
        context.abort(UNAVAILABLE, "shutting down")
    assert length < 32, "nothing is asked of a server that is gone"
    return Numbered(seconds=0.002)(request, context)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What the command wrote and printed; the server refuses a length."""
    folder, printed = tmp_path_factory.mktemp("report"), io.StringIO()
    with StandIn(by_length) as server, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(settings(server, clients="1,2", lengths="8,16,24", bound_ms=1000.0, output_dir=str(folder)))
    report = json.loads((folder / "report.json").read_text())
    return SimpleNamespace(folder=folder, printed=printed.getvalue(), report=report)


def test_report_has_every_point_and_names_its_arrival(written):
    loads = [(point["length"], point["clients"], point["arrival"]) for point in written.report["points"]]
    assert loads == [(length, clients, "closed") for length in (8, 16) for clients in (1, 2)]
    for point in written.report["points"]:
        assert point["requests"] > 20 and point["errors"] == {} and point["valid"]
        latency = point["latency_ms"]
        assert latency["min"] <= latency["p50"] <= latency["max"]
        assert latency["p99.9"] is None
        assert point["requests_per_second"] == pytest.approx(point["requests"] / point["seconds"])
        assert point["within_bound"] == 1.0
        assert point["first_call_ms"] > 0
    assert "8 tokens x 1" in written.printed and "too few answers to quote" in written.printed


def test_report_names_the_machine_and_what_the_server_refused(written):
    json.dumps(written.report, allow_nan=False)
    environment, (skipped,) = written.report["environment"], written.report["skipped"]
    assert environment["usable_cores"] >= 1 and environment["cpu"] and environment["packages"]["grpcio"]
    assert written.report["settings"]["lengths"] == "8,16,24" and written.report["model"]["version"] == 1
    assert skipped["length"] == 24 and "not in [0, 16)" in skipped["reason"]
    assert "skipped 24 tokens x 1" in written.printed


def test_files_are_what_they_say(written):
    assert {path.name for path in written.folder.iterdir()} == {"report.json", "report.csv", "latency.png"}
    points, rows = written.report["points"], list(csv.DictReader((written.folder / "report.csv").open()))
    assert [float(row["p50_ms"]) for row in rows] == [point["latency_ms"]["p50"] for point in points]
    assert rows[0]["p99.9_ms"] == "" and rows[0]["valid"] == "True"
    assert (written.folder / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_errors_stand_in_the_verdict_with_what_to_set():
    # After the 16 first answers.
    def unreliable(number, context):
        if number > 16 and number % 3 == 0:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted")

    report = measured(Numbered(unreliable), threads=1, bound_ms=1000.0, warmup_seconds=0.1)
    (point,) = report["points"]
    count = point["errors"]["RESOURCE_EXHAUSTED"]["count"]
    assert count == pytest.approx(point["requests"] / 3, abs=2)
    assert point["within_bound"] == pytest.approx(2 / 3, abs=0.05)
    assert not point["valid"] and "% of the requests failed" in point["invalid_because"][0]
    printed = reports.console_text(report)
    assert f"{count:,} RESOURCE_EXHAUSTED" in printed and "--grpc_max_threads" in printed
    assert re.search(rf"{count:,} of [\d,]+ requests: RESOURCE_EXHAUSTED, the first at \d\.\d s: Server Thr", printed)


def test_interrupted_between_two_loads_the_first_is_kept(monkeypatch, written):
    first = written.report["points"][0]
    monkeypatch.setattr(run, "measure", mock.Mock(side_effect=[first, KeyboardInterrupt]))
    report = measured(clients="1,2")
    assert report["points"] == [first] and report["ended_early"] == "interrupted"


@pytest.mark.slow
def test_search_finds_the_rate_of_a_server_with_a_known_capacity():
    """One thread and 10 ms a request: 100/s at the very most, and a little over for as short as a second."""
    report = measured(Numbered(seconds=0.01), threads=1, find_rate=True, bound_ms=100.0, seconds=0.5)
    (found,) = report["found_rates"]
    assert 0 < found["rate"] < 150
    assert found["limited_by"] in ("latency", "generator")
    (point,) = report["points"]
    assert point["offered_per_second"] == found["rate"] and point["within_bound"] >= 0.99
    # Ten times --seconds at this rate are fewer than 1,000 requests, and the p99 of so few is marked.
    assert found["requests"] == pytest.approx(5 * point["rate"], abs=1)
    printed = reports.console_text(report)
    assert "p99 within 100 ms up to" in printed
    assert f"from {found['requests']} requests where a p99 takes 1,000" in printed


def test_a_point_without_a_request_is_a_row_of_dashes():
    report = measured(arrival="constant", rate="0.1")
    assert report["points"][0]["requests"] == 0
    assert report["points"][0]["invalid_because"] == ["no request was due"]
    assert " - " in reports.console_text(report) and reports.plot_latency(report)


def test_an_open_loop_offers_each_rate():
    report = measured(arrival="poisson", rate="50,100", bound_ms=5000.0)
    assert [point["rate"] for point in report["points"]] == [50, 100]
    for point in report["points"]:
        assert point["requests"] == 0.4 * point["rate"] and point["arrival"] == "poisson"
        # A machine with more work than cores sends late, and says so.
        assert point["offered_per_second"] == pytest.approx(point["rate"], rel=0.1) or not point["generator"]["kept_up"]


def test_a_server_that_goes_away_leaves_what_was_measured(tmp_path, capsys):
    with StandIn(by_length) as server, refused("ended early, and the report holds"):
        main(settings(server, lengths="8,32,64", output_dir=str(tmp_path)))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [point["length"] for point in report["points"]] == [8]
    assert "shutting down" in report["ended_early"] and "ENDED EARLY" in capsys.readouterr().out


@pytest.mark.parametrize("blow", ["SIGINT", "SIGKILL"])
def test_interrupted_it_leaves_no_process_and_no_half_report(tmp_path, blow):
    under_way = threading.Event()
    # The first requests, one of each kind, come from the command itself.
    with StandIn(Numbered(lambda number, context: number > 30 and under_way.set())) as server:
        flags = [f"--target={server.target}", "--lengths=8", "--seconds=60", "--warmup_seconds=0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "serving.benchmark", *flags, f"--output_dir={tmp_path}"],
            stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # fmt: skip
        assert under_way.wait(60)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if blow == "SIGINT":
            # As a terminal does it: to every process of the group.
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        errors = process.communicate(timeout=60)[1]
        wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), 60)
    assert list(tmp_path.iterdir()) == []
    if blow == "SIGINT":
        assert process.returncode == 130 and errors.rstrip().endswith("interrupted") and "Traceback" not in errors


def trials(limit, first_rate):
    """The trials of a search at a server that meets the bound up to its limit."""
    return list(search(lambda rate: {"rate": rate, "limit": "" if rate <= limit else "latency"}, first_rate))


@given(limit=st.floats(0.5, 5000), start=st.floats(0.02, 5.0))
def test_finds_the_limit_to_its_precision(limit, start):
    found = trials(limit, start * limit)
    best = bracket(found)[0]["rate"]
    assert best <= limit <= best * (1 + PRECISION) * (1 + 1e-9)
    assert found[0]["rate"] == start * limit and len(found) <= 20


def test_a_server_without_a_limit_or_that_never_meets_the_bound_ends_the_search():
    never, always = trials(0.0, 100.0), trials(float("inf"), 1.0)
    assert bracket(never) == (None, never[-1]) and len(never) <= 20
    assert bracket(always) == (always[-1], None) and len(always) == 20


# The share within the bound, whether the generator kept up, errors by status, and what is the limit.
JUDGED = """
0.995 | true | {} | ""
0.989 | true | {} | "latency"
0.995 | false | {} | ""
0.5 | false | {} | "generator"
0.5 | true | {"UNAVAILABLE": 500} | "errors"
0.5 | false | {"UNAVAILABLE": 500} | "errors"
0.5 | true | {"UNAVAILABLE": 10} | "latency"
0.5 | true | {"DEADLINE_EXCEEDED": 500} | "latency"
null | true | {} | "latency"
"""


@pytest.mark.parametrize("line", lines(JUDGED))
def test_judgement(line):
    within_bound, kept_up, errors, limit = map(json.loads, line.split(" | "))
    counted = {status: {"count": count} for status, count in errors.items()}
    point = {"requests": 1000, "within_bound": within_bound, "generator": {"kept_up": kept_up}, "errors": counted}
    assert limit_of(point) == limit
