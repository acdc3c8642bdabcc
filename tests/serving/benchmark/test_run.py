"""Whole runs through the library: what a report holds, and what its files look like."""

import base64
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
from types import SimpleNamespace
from unittest import mock

import grpc
import pytest

from serving.benchmark import compare, table
from serving.benchmark.__main__ import main
from serving.benchmark.point import Load, seconds_of
from serving.benchmark.report import write_report
from serving.benchmark.run import run_benchmark, trial_settings
from serving.benchmark.settings import BenchmarkSettings
from serving.wire import protos
from serving.wire.tensors import read_tensor
from tests.serving.benchmark.conftest import Numbered
from tests.serving.gateway.conftest import wait_until
from tests.stand_in import IDS, TEXT, StandIn, constant_answer
from tfrecords.base.errors import UserError

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def settings(server, **changes):
    quick = {"seconds": 0.4, "warmup_seconds": 0.0, "lengths": "8", "windows": 3}
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
    """What the command wrote and printed; the server, and a model with a hostile name, refuse a length."""
    folder, printed = tmp_path_factory.mktemp("report"), io.StringIO()
    with StandIn(by_length) as server, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        changes = {"clients": "1,2", "lengths": "8,16,24", "bound_ms": 1000.0, "least_requests": 50}
        main(settings(server, model="<script>alert(1)</script>", output_dir=str(folder), **changes))
    report = json.loads((folder / "report.json").read_text())
    return SimpleNamespace(folder=folder, printed=printed.getvalue(), report=report)


def test_report_has_every_point_and_names_its_arrival(written):
    loads = [(point["length"], point["clients"], point["arrival"]) for point in written.report["points"]]
    assert loads == [(length, clients, "closed") for length in (8, 16) for clients in (1, 2)]
    for point in written.report["points"]:
        assert point["requests"] > 20 and point["errors"] == {} and point["valid"]
        assert point["answers"] == {"checked": True, "wrong": 0, "worst_difference": 0.0}
        latency = point["latency_ms"]
        assert latency["min"] <= latency["p50"] <= latency["max"]
        assert latency["p99.9"] is None
        assert point["requests_per_second"] == pytest.approx(point["requests"] / point["seconds"])
        assert point["within_bound"] == 1.0
        assert point["goodput_per_second"] == pytest.approx(point["requests_per_second"])
        assert point["first_call_ms"] > 0
    assert "8 tokens x 1" in written.printed and "report.html" in written.printed


def test_lengths_over_the_models_maximum_are_skipped_with_the_servers_word(written):
    (skipped,) = written.report["skipped"]
    assert skipped["length"] == 24 and "not in [0, 16)" in skipped["reason"]
    assert "skipped 24 tokens x 1" in written.printed


def test_report_says_where_and_with_what(written):
    environment = written.report["environment"]
    assert environment["usable_cores"] >= 1 and environment["cpu"] and environment["packages"]["grpcio"]
    assert written.report["settings"]["seed"] == 0 and written.report["model"]["version"] == 1
    json.dumps(written.report, allow_nan=False)


def test_files_are_what_they_say(written, capsys):
    pictures = {"latency.png", "throughput.png", "distribution.png"}
    assert {path.name for path in written.folder.iterdir()} == pictures | {"report.json", "report.csv", "report.html"}
    points, rows = written.report["points"], list(csv.DictReader((written.folder / "report.csv").open()))
    assert [float(row["p50_ms"]) for row in rows] == [point["latency_ms"]["p50"] for point in points]
    assert rows[0]["p99.9_ms"] == ""
    page = (written.folder / "report.html").read_text()
    images = [base64.b64decode(image) for image in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]
    assert set(images) == {(written.folder / name).read_bytes() for name in pictures} and len(images) == 3
    assert all(image.startswith(b"\x89PNG") for image in images)
    # Stands alone: nothing is fetched from anywhere, nor run.
    assert not re.search(r'(src|href)="(?!data:)', page) and "<script" not in page and "@import" not in page
    compare.main([str(written.folder / "report.json")] * 2)
    assert capsys.readouterr().out.count("no real difference") >= len(points)


def test_errors_and_wrong_answers_stand_in_the_verdict():
    # After the 16 first answers.
    def unreliable(number, context):
        if number > 16 and number % 3 == 0:
            context.abort(UNAVAILABLE, "overloaded")
        return number > 16 and number % 3 == 1 and constant_answer((0.9, 0.1))

    report = measured(Numbered(unreliable), threads=1, bound_ms=1000.0, warmup_seconds=0.1, least_requests=100)
    (point,) = report["points"]
    assert point["errors"]["UNAVAILABLE"]["count"] == pytest.approx(point["requests"] / 3, abs=2)
    assert point["answers"]["wrong"] == pytest.approx(point["requests"] / 3, abs=2)
    assert point["within_bound"] == pytest.approx(2 / 3, abs=0.05)
    printed = table.console_text(report)
    assert "UNAVAILABLE" in printed and "WRONG ANSWERS" in printed
    assert not point["valid"] and "% of the requests failed" in point["invalid_because"][0]
    assert f"{point['errors']['UNAVAILABLE']['count']:,} of {point['requests']:,} requests: UNAVAILABLE" in printed


def swapped(number, context):
    """Answers as version 1, after 100 requests as version 2."""
    return number > 100 and constant_answer((0.6, 0.4), version=2)


def test_a_swap_of_versions_is_told_and_no_wrong_answer(tmp_path):
    report = measured(Numbered(swapped, seconds=0.001), threads=1, clients="1,2", least_requests=150)
    during, after = report["points"]
    assert set(during["versions"]) == {"1", "2"} and set(after["versions"]) == {"2"}
    for point in (during, after):
        assert point["answers"] == {"checked": True, "wrong": 0, "worst_difference": 0.0}
        assert sum(point["versions"].values()) == point["answered"]
    assert during["versions"]["1"] == 100 - 16
    assert report["model"]["version"] == 1 and report["model"]["versions"] == [1, 2]
    printed = table.console_text(report)
    assert "VERSIONS 1 and 2" in printed and "version 1 answered 84, version 2 answered" in printed
    assert "timeline.png" in write_report(report, tmp_path)
    assert "versions 1 and 2: latency over gRPC" in (tmp_path / "report.html").read_text()


def test_few_good_answers_among_many_failures_are_remarked():
    """The flood is no sample: percentiles of the few answers are dashes, and the remark says why."""
    full = grpc.StatusCode.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"
    flooded = Numbered(lambda number, context: number > 40 and context.abort(*full))
    report = measured(flooded, threads=1, least_requests=101)
    (point,) = report["points"]
    assert point["requests"] > 100 and point["answered"] == 40 - 16
    printed = table.console_text(report)
    assert "too few answers to quote (p90 needs" in printed
    # What to set on the server stands there, too.
    assert "Server Threadpool Exhausted -- " in printed and "--grpc_max_threads" in printed


def mortal(calls):
    gone = "connection refused"
    return Numbered(lambda number, context: number > calls and context.abort(UNAVAILABLE, gone), seconds=0.002)


def test_a_server_that_is_gone_ends_the_run_with_its_point_kept():
    """Of `--clients=1,2,4` the second finds nobody: it is in the report, invalid, and the third is not tried."""
    report = measured(mortal(60), lengths="8,16", clients="1,2,4", least_requests=100)
    assert [point["clients"] for point in report["points"]] == [1, 2]
    assert [point["valid"] for point in report["points"]] == [False, False]
    assert report["points"][1]["invalid_because"][0] == "no request was answered"
    assert "answers no more: connection refused" in report["ended_early"]
    assert "no request was answered" in table.console_text(report)


@pytest.mark.parametrize(
    ("errors", "words"),
    [({}, "STALLED 5.0 s"), ({"DEADLINE_EXCEEDED": 3}, "STALLED 5.0 s"), ({"UNAVAILABLE": 9}, "NO ANSWERS FOR 5.0 s")],
)
def test_the_verdict_tells_a_server_that_stands_still_from_one_that_is_gone(written, errors, words):
    report = written.report
    counted = {status: {"count": count, "first_s": 1.0, "message": ""} for status, count in errors.items()}
    point = report["points"][0] | {
        "silence": {"seconds": 5.0, "began": 1.0, "stalled": True}, "errors": counted,
        "stable": False, "stability": "nobody was answered for 5.0 s, from 1.0 s on",
    }  # fmt: skip
    printed = table.console_text(report | {"points": [point]})
    assert words in printed and "from 1.0 s on" in printed and "UNSTABLE" not in printed


def test_interrupted_between_two_loads_the_first_is_kept(monkeypatch, written):
    first = written.report["points"][0]
    monkeypatch.setattr("serving.benchmark.run.measure", mock.Mock(side_effect=[first, KeyboardInterrupt]))
    report = measured(clients="1,2")
    assert report["points"] == [first] and report["ended_early"] == "interrupted"


def test_a_search_whose_server_dies_keeps_its_trials():
    report = measured(mortal(300), find_rate=True, bound_ms=500.0, least_requests=100)
    assert "answers no more" in report["ended_early"]
    (found,) = report["found_rates"]
    assert found["trials"][-1]["limit"] == "errors" and report["points"]


@pytest.mark.slow
def test_search_finds_the_rate_of_a_server_with_a_known_capacity():
    """One thread and 10 ms a request: 100/s at the very most, and a little over for as short as a second."""

    quick = {"bound_ms": 100.0, "seconds": 0.5, "least_requests": 40}
    report = measured(Numbered(seconds=0.01), threads=1, find_rate=True, **quick)
    (found,) = report["found_rates"]
    assert 0 < found["rate"] < 150
    assert found["limited_by"] in ("latency", "generator")
    (point,) = report["points"]
    assert point["offered_per_second"] == found["rate"] and point["within_bound"] >= 0.99
    # Every trial went on until 40 requests were due, and the p99 of so few is marked.
    assert min(trial["requests"] for trial in found["trials"]) >= 39
    printed = table.console_text(report)
    assert (
        "p99 within 100 ms up to" in printed and f"from {found['requests']} requests where a p99 takes 1,000" in printed
    )


@pytest.mark.parametrize(("rate", "least", "due"), [(50, 0, 1000), (5, 0, 500), (50, 300, 500), (200, 0, 2000)])
def test_a_trial_has_arrivals_enough_for_a_p99(rate, least, due):
    told = trial_settings(BenchmarkSettings(find_rate=True, bound_ms=9.0, seconds=10.0, least_requests=least))
    assert rate * seconds_of(Load("poisson", rate=rate), told) == due


def test_a_search_that_finds_no_rate_says_so():
    # So slow that the search begins at the lowest rate.
    quick = {"seconds": 0.2, "least_requests": 10}
    report = measured(Numbered(seconds=0.02), threads=1, find_rate=True, bound_ms=0.001, **quick)
    (found,) = report["found_rates"]
    assert found["rate"] is None and len(found["trials"]) >= 1
    assert report["points"][0]["within_bound"] == 0 and "no rate tried" in table.console_text(report)


def test_a_point_without_a_request_is_a_row_of_dashes(tmp_path):
    report = measured(arrival="constant", rate="0.1")
    assert report["points"][0]["requests"] == 0
    assert report["points"][0]["invalid_because"] == ["no request was due"]
    assert " - " in table.console_text(report)
    assert "latency.png" not in write_report(report, tmp_path)


def test_each_scenario_reports_its_figure():
    report = measured(scenario="single_stream")
    (point,) = report["points"]
    assert report["scenario"] == "single_stream" and "single stream, p90" in table.console_text(report)
    assert (point["arrival"], point["clients"]) == ("closed", 1)
    report = measured(scenario="server", rate="50,100", bound_ms=5000.0)
    assert "p99 bound " in table.console_text(report)
    assert [point["rate"] for point in report["points"]] == [50, 100]
    for point in report["points"]:
        assert point["requests"] == 0.4 * point["rate"] and point["arrival"] == "poisson"
        # A machine with more work than cores sends late, and says so.
        assert point["offered_per_second"] == pytest.approx(point["rate"], rel=0.1) or not point["generator"]["kept_up"]
        assert point["send_lag_ms"]["max"] >= point["send_lag_ms"]["p50"] >= 0
    # Of a model of texts a length counts words.
    report = measured(inputs=TEXT, scenario="offline", batches="4", lengths="5")
    (point,) = report["points"]
    assert point["unit"] == "words" and point["name"].startswith("5 words x 4") and point["clients"] == 4
    assert point["arrival"] == "closed"
    assert point["examples_per_second"] == pytest.approx(4 * point["requests_per_second"])
    assert "offline, " in table.console_text(report) and "rows/s" in table.console_text(report)


def test_a_server_that_goes_away_leaves_what_was_measured(tmp_path, capsys):
    with StandIn(by_length) as server, pytest.raises(UserError, match="ended early, and the report holds"):
        main(settings(server, lengths="8,32,64", output_dir=str(tmp_path)))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [point["length"] for point in report["points"]] == [8]
    assert "shutting down" in report["ended_early"] and "ENDED EARLY" in capsys.readouterr().out


def children_of(pid):
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.parametrize("blow", ["SIGINT", "SIGKILL"])
def test_interrupted_it_leaves_no_process_and_no_half_report(tmp_path, blow):
    under_way = threading.Event()
    # The first requests, one of each kind, come from the command itself.
    with StandIn(Numbered(lambda number, context: number > 30 and under_way.set())) as server:
        flags = [f"--target={server.target}", "--lengths=8", "--seconds=60", "--warmup_seconds=0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "serving.benchmark", *flags, f"--output_dir={tmp_path}"],
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert under_way.wait(60)
        children = children_of(process.pid)
        if blow == "SIGINT":
            # As a terminal does it: to every process of the group.
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        errors = process.communicate(timeout=60)[1]
        wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), 60)
    assert len(children) >= 2 and list(tmp_path.iterdir()) == []
    if blow == "SIGINT":
        assert process.returncode == 130 and errors.rstrip().endswith("interrupted") and "Traceback" not in errors
