"""Whole runs through the library: what a report holds, and what its files look like."""

import base64
import csv
import json
import re
import socket
import subprocess
import sys
import time

import grpc
import pytest

from serving.benchmark import table
from serving.benchmark.point import Load, measure, seconds_of
from serving.benchmark.report import write_report
from serving.benchmark.run import run_benchmark, trial_settings
from serving.benchmark.settings import Settings
from serving.benchmark.stand_in import TEXT, StandIn, constant_answer
from serving.client import ServingError
from serving.wire import protos
from serving.wire.tensors import read_tensor
from tfrecords.base.errors import UserError

ANSWER = constant_answer()


def settings(server, **changes):
    quick = {"seconds": 0.4, "warmup_seconds": 0.1, "lengths": "8,16", "windows": 3}
    return Settings(target=server.target, **{**quick, **changes})


def no_longer_than(limit):
    """A model with `limit` positions."""

    def predict(request, context):
        ids = read_tensor(protos.PredictRequest.FromString(request).inputs["input_ids"])
        if ids.shape[1] > limit:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"indices[0,{limit}] = {limit} is not in [0, {limit})")
        time.sleep(0.002)
        return ANSWER

    return predict


@pytest.fixture(scope="module")
def report():
    with StandIn(no_longer_than(16)) as server:
        yield run_benchmark(settings(server, clients="1,2", lengths="8,16,32", bound_ms=1000.0))


def test_report_has_every_point_and_names_its_arrival(report):
    assert [(point["length"], point["clients"], point["arrival"]) for point in report["points"]] == [
        (8, 1, "closed"), (8, 2, "closed"), (16, 1, "closed"), (16, 2, "closed"),
    ]  # fmt: skip
    for point in report["points"]:
        assert point["requests"] > 20 and point["errors"] == {} and point["valid"]
        assert point["answers"] == {"checked": True, "wrong": 0, "worst_difference": 0.0}
        latency = point["latency_ms"]
        assert latency["min"] <= latency["p50"] <= latency["max"]
        assert latency["p99.9"] is None
        assert point["requests_per_second"] == pytest.approx(point["requests"] / point["seconds"])
        assert point["within_bound"] == 1.0
        assert point["goodput_per_second"] == pytest.approx(point["requests_per_second"])
        assert point["first_call_ms"] > 0


def test_lengths_over_the_models_maximum_are_skipped_with_the_servers_word(report):
    (skipped,) = report["skipped"]
    assert skipped["length"] == 32 and "not in [0, 16)" in skipped["reason"]
    assert "skipped 32 tokens x 1" in table.console_text(report)


def test_report_says_where_and_with_what(report):
    environment = report["environment"]
    assert environment["usable_cores"] >= 1 and environment["cpu"] and environment["packages"]["grpcio"]
    assert report["settings"]["seed"] == 0 and report["model"]["version"] == 1
    json.dumps(report, allow_nan=False)


def test_files_are_what_they_say(report, tmp_path):
    names = write_report(report, tmp_path)
    assert {"report.json", "report.csv", "report.html", "latency.png", "throughput.png", "distribution.png"} == set(
        names
    )
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report))
    rows = list(csv.DictReader((tmp_path / "report.csv").open()))
    assert [float(row["p50_ms"]) for row in rows] == [point["latency_ms"]["p50"] for point in report["points"]]
    assert rows[0]["p99.9_ms"] == ""
    page = (tmp_path / "report.html").read_text()
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert [base64.b64decode(image) for image in images] == [
        (tmp_path / name).read_bytes() for name in names if name.endswith(".png")
    ]
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    # Stands alone: nothing is fetched from anywhere.
    assert not re.search(r'(src|href)="(?!data:)', page) and "<script" not in page and "@import" not in page


def test_names_from_a_server_cannot_break_the_page(report, tmp_path):
    hostile = json.loads(json.dumps(report))
    hostile["model"]["name"] = "<script>alert(1)</script>"
    write_report(hostile, tmp_path)
    assert "<script" not in (tmp_path / "report.html").read_text()


def test_open_loop_reports_its_lag_and_offered_rate():
    with StandIn() as server:
        report = run_benchmark(settings(server, arrival="poisson", rate="50,100", lengths="8", seconds=1.0))
    assert [point["rate"] for point in report["points"]] == [50, 100]
    for point in report["points"]:
        assert point["requests"] == point["rate"] and point["offered_per_second"] == pytest.approx(
            point["rate"], rel=0.1
        )
        assert point["send_lag_ms"]["max"] >= point["send_lag_ms"]["p50"] >= 0


def test_errors_and_wrong_answers_stand_in_the_verdict():
    calls = []

    def unreliable(request, context):
        calls.append(1)
        if len(calls) > 40 and len(calls) % 3 == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "overloaded")
        return constant_answer((0.9, 0.1)) if len(calls) > 40 and len(calls) % 3 == 1 else ANSWER

    with StandIn(unreliable, threads=1) as server:
        report = run_benchmark(settings(server, lengths="8", bound_ms=1000.0))
    (point,) = report["points"]
    assert point["errors"]["UNAVAILABLE"]["message"] == "overloaded"
    assert point["errors"]["UNAVAILABLE"]["count"] == pytest.approx(point["requests"] / 3, abs=2)
    assert point["answers"]["wrong"] == pytest.approx(point["requests"] / 3, abs=2)
    assert point["within_bound"] == pytest.approx(2 / 3, abs=0.05)
    printed = table.console_text(report)
    assert "UNAVAILABLE" in printed and "WRONG ANSWERS" in printed
    assert not point["valid"] and "% of the requests failed" in point["invalid_because"][0]
    assert f"{point['errors']['UNAVAILABLE']['count']:,} of {point['requests']:,} requests: UNAVAILABLE" in printed


class Versions:
    """Answers as version 1, after `calls` requests as version 2; wrongly every `lies` requests."""

    def __init__(self, calls, lies=10**9):
        self.calls, self.lies, self.seen = calls, lies, 0

    def __call__(self, request, context):
        self.seen += 1
        time.sleep(0.001)
        wrong = self.seen > 20 and self.seen % self.lies == 0
        if self.seen > self.calls:
            return constant_answer((0.5, 0.5) if wrong else (0.6, 0.4), version=2)
        return constant_answer((0.5, 0.5)) if wrong else ANSWER


def test_a_swap_of_versions_is_told_and_no_wrong_answer(tmp_path):
    with StandIn(Versions(calls=100), threads=1) as server:
        report = run_benchmark(settings(server, lengths="8", clients="1,2", warmup_seconds=0.0))
    swapped, after = report["points"]
    assert set(swapped["versions"]) == {"1", "2"} and set(after["versions"]) == {"2"}
    for point in (swapped, after):
        assert point["answers"] == {"checked": True, "wrong": 0, "worst_difference": 0.0}
        assert sum(point["versions"].values()) == point["answered"]
    assert swapped["versions"]["1"] == 100 - 16
    assert report["model"]["version"] == 1 and report["model"]["versions"] == [1, 2]
    printed = table.console_text(report)
    assert "VERSIONS 1 and 2" in printed and "version 1 answered 84, version 2 answered" in printed
    assert "timeline.png" in write_report(report, tmp_path)
    assert "versions 1 and 2: latency over gRPC" in (tmp_path / "report.html").read_text()


def test_wrong_answers_are_found_on_both_sides_of_a_swap():
    with StandIn(Versions(calls=100, lies=10), threads=1) as server:
        report = run_benchmark(settings(server, lengths="8", warmup_seconds=0.0))
    (point,) = report["points"]
    assert point["answers"]["wrong"] >= point["answered"] // 10 - 1 and point["answers"]["wrong"] > 8
    assert "WRONG ANSWERS" in table.console_text(report)


def test_few_good_answers_among_many_failures_are_remarked():
    """The flood is no sample: percentiles of the few answers are dashes, and the remark says why."""
    calls = []

    def flooded(request, context):
        calls.append(1)
        if len(calls) > 40:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted")
        return ANSWER

    with StandIn(flooded, threads=1) as server:
        report = run_benchmark(settings(server, lengths="8", warmup_seconds=0.0))
    (point,) = report["points"]
    assert point["requests"] > 100 and point["answered"] == 40 - 16
    printed = table.console_text(report)
    assert "too few answers to quote (p90 needs" in printed
    # What to set on the server stands there, too.
    assert "Server Threadpool Exhausted -- " in printed and "--grpc_max_threads" in printed


def test_a_server_that_is_gone_ends_the_run_with_its_point_kept(tmp_path):
    """Of `--clients=1,2,4` the second finds nobody: it is in the report, invalid, and the third is not tried."""
    calls = []

    def mortal(request, context):
        calls.append(1)
        if len(calls) > 60:
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        time.sleep(0.002)
        return ANSWER

    with StandIn(mortal) as server:
        report = run_benchmark(settings(server, lengths="8,16", clients="1,2,4", warmup_seconds=0.0))
    assert [point["clients"] for point in report["points"]] == [1, 2]
    assert [point["valid"] for point in report["points"]] == [False, False]
    assert report["points"][1]["invalid_because"][0] == "no request was answered"
    assert "answers no more: connection refused" in report["ended_early"]
    write_report(report, tmp_path)
    assert "no request was answered" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("errors", "words"),
    [({}, "STALLED 5.0 s"), ({"DEADLINE_EXCEEDED": 3}, "STALLED 5.0 s"), ({"UNAVAILABLE": 9}, "NO ANSWERS FOR 5.0 s")],
)
def test_the_verdict_tells_a_server_that_stands_still_from_one_that_is_gone(report, errors, words):
    counted = {status: {"count": count, "first_s": 1.0, "message": ""} for status, count in errors.items()}
    point = report["points"][0] | {
        "silence": {"seconds": 5.0, "began": 1.0, "stalled": True}, "errors": counted,
        "stable": False, "stability": "nobody was answered for 5.0 s, from 1.0 s on",
    }  # fmt: skip
    printed = table.console_text(report | {"points": [point]})
    assert words in printed and "from 1.0 s on" in printed and "UNSTABLE" not in printed


def test_interrupted_between_two_loads_the_first_is_kept(monkeypatch):
    taken = []

    def interrupted(*arguments):
        if taken:
            raise KeyboardInterrupt
        taken.append(measure(*arguments))
        return taken[0]

    monkeypatch.setattr("serving.benchmark.run.measure", interrupted)
    with StandIn() as server:
        report = run_benchmark(settings(server, lengths="8", clients="1,2"))
    assert [point["clients"] for point in report["points"]] == [1] and report["ended_early"] == "interrupted"


def test_a_search_whose_server_dies_keeps_its_trials():
    calls = []

    def mortal(request, context):
        calls.append(1)
        if len(calls) > 600:
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        time.sleep(0.002)
        return ANSWER

    with StandIn(mortal) as server:
        report = run_benchmark(settings(server, lengths="8", find_rate=True, bound_ms=500.0, least_requests=100))
    assert "answers no more" in report["ended_early"]
    (found,) = report["found_rates"]
    assert found["trials"][-1]["limit"] == "errors" and report["points"]


@pytest.mark.slow
def test_search_finds_the_rate_of_a_server_with_a_known_capacity():
    """One thread and 10 ms a request: 100/s at the very most, and a little over for as short as a second."""

    def slow(request, context):
        time.sleep(0.01)
        return ANSWER

    with StandIn(slow, threads=1) as server:
        report = run_benchmark(
            settings(server, lengths="8", find_rate=True, bound_ms=100.0, seconds=0.5, least_requests=40)
        )
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
    told = trial_settings(Settings(find_rate=True, bound_ms=9.0, seconds=10.0, least_requests=least))
    assert rate * seconds_of(Load("poisson", rate=rate), told) == due


def test_a_search_that_finds_no_rate_says_so():
    with StandIn() as server:
        quick = {"seconds": 0.2, "least_requests": 10, "warmup_seconds": 0.0}
        report = run_benchmark(settings(server, lengths="8", find_rate=True, bound_ms=0.001, **quick))
    (found,) = report["found_rates"]
    assert found["rate"] is None and len(found["trials"]) >= 1
    assert report["points"][0]["within_bound"] == 0 and "no rate tried" in table.console_text(report)


def test_a_point_without_a_request_is_a_row_of_dashes(tmp_path):
    with StandIn() as server:
        report = run_benchmark(settings(server, lengths="8", arrival="constant", rate="0.1"))
    assert report["points"][0]["requests"] == 0
    assert report["points"][0]["invalid_because"] == ["no request was due"]
    assert " - " in table.console_text(report)
    assert "latency.png" not in write_report(report, tmp_path)


def test_text_models_are_measured_in_words():
    with StandIn(inputs=TEXT) as server:
        report = run_benchmark(settings(server, lengths="5"))
    assert report["points"][0]["unit"] == "words" and report["points"][0]["name"].startswith("5 words x 1")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"scenario": "single_stream"}, "single stream, p90"),
        ({"scenario": "offline", "batches": "4"}, "offline, "),
        ({"scenario": "server", "rate": "50", "bound_ms": 5000.0}, "p99 bound "),
    ],
)
def test_each_scenario_reports_its_figure(flags, words):
    with StandIn() as server:
        report = run_benchmark(settings(server, lengths="8", **flags))
    printed = table.console_text(report)
    assert words in printed and report["scenario"] == flags["scenario"]
    if flags["scenario"] == "offline":
        (point,) = report["points"]
        assert point["examples_per_second"] == pytest.approx(4 * point["requests_per_second"])
        assert point["clients"] == 4 and "rows/s" in printed


def test_scenarios_choose_the_arrivals():
    assert Settings(scenario="single_stream").resolved().clients == "1"
    assert Settings(scenario="server", rate="5", bound_ms=9.0).resolved().arrival == "poisson"
    assert Settings(scenario="offline").resolved().arrival == "closed"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scenario": "fast"}, "single_stream, server, offline"),
        ({"arrival": "poison"}, "closed, constant, poisson"),
        ({"arrival": "poisson"}, "give --rate"),
        ({"rate": "5"}, "--arrival=poisson"),
        ({"find_rate": True}, "--bound_ms"),
        ({"scenario": "server", "rate": "5"}, "--bound_ms"),
        ({"lengths": "12,x"}, "--lengths=12,x"),
        ({"lengths": ""}, "numbers above 0"),
        ({"clients": "0"}, "--clients=0"),
        ({"seconds": 0.0}, "--seconds=0.0"),
        ({"mixed": True}, "--text_file"),
        ({"protocols": "soap"}, "--protocols=soap"),
        ({"protocols": "grpc,rest"}, "--rest_api_port"),
        ({"protocols": "rest", "rest_api_port": 1, "arrival": "poisson", "rate": "5"}, "closed loop"),
    ],
)
def test_wrong_settings_are_met_at_the_door(wrong, words):
    with pytest.raises(UserError, match=words):
        Settings(**wrong)


def test_absent_target_and_absent_model():
    with pytest.raises(ServingError, match="is the server running"):
        run_benchmark(Settings(target="127.0.0.1:1"))


def command(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "serving.benchmark", *arguments], capture_output=True, text=True, timeout=120, **settings
    )


def test_command_writes_a_report_and_compares_it_with_itself(tmp_path):
    with StandIn() as server:
        done = command(f"--target={server.target}", "--lengths=8", "--seconds=0.5", f"--output_dir={tmp_path / 'a'}")
    assert done.returncode == 0, done.stderr
    assert "8 tokens x 1" in done.stdout and "report.html" in done.stdout
    compared = command("compare", str(tmp_path / "a/report.json"), str(tmp_path / "a/report.json"))
    assert compared.returncode == 0 and "no real difference" in compared.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "UNAVAILABLE"),
        (["--lengths=none"], "--lengths=none"),
        (["compare", "a.json"], "takes two reports"),
        (["--in_process=/nowhere"], "UNAVAILABLE"),
    ],
)
@pytest.mark.few(2)
def test_command_failures_are_one_line_and_status_1(arguments, words, tmp_path):
    with socket.socket() as silent:
        # Bound but not listened on: nobody else can answer there.
        silent.bind(("127.0.0.1", 0))
        target = [f"--target=127.0.0.1:{silent.getsockname()[1]}", f"--output_dir={tmp_path / 'out'}"]
        failed = command(*arguments, *([] if "compare" in arguments else target))
    assert failed.returncode == 1 and failed.stdout == ""
    assert len(failed.stderr.strip().splitlines()) == 1 and words in failed.stderr


def test_a_server_that_goes_away_leaves_what_was_measured(tmp_path):
    calls = []

    def mortal(request, context):
        ids = read_tensor(protos.PredictRequest.FromString(request).inputs["input_ids"])
        calls.append(ids.shape[1])
        if ids.shape[1] == 16:
            context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
        return ANSWER

    with StandIn(mortal) as server:
        ended = command(
            f"--target={server.target}", "--lengths=8,16,32", "--seconds=0.3", "--warmup_seconds=0",
            f"--output_dir={tmp_path}",
        )  # fmt: skip
    assert ended.returncode == 1 and "ended early" in ended.stderr.splitlines()[-1]
    report = json.loads((tmp_path / "report.json").read_text())
    assert [point["length"] for point in report["points"]] == [8]
    assert "shutting down" in report["ended_early"] and "ENDED EARLY" in ended.stdout
    assert 32 not in calls


def children_of(pid):
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.parametrize("blow", ["SIGINT", "SIGKILL"])
def test_interrupted_it_leaves_no_process_and_no_half_report(tmp_path, blow):
    import os
    import signal

    with StandIn() as server:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "serving.benchmark", f"--target={server.target}", "--lengths=8",
                "--seconds=60", "--warmup_seconds=0", f"--output_dir={tmp_path}",
            ],
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while len(children := children_of(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.0)
        if blow == "SIGINT":
            # As a terminal does it: to every process of the group.
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        errors = process.communicate(timeout=20)[1]
        deadline = time.monotonic() + 15
        while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < deadline:
            time.sleep(0.1)
    assert children and not any(os.path.exists(f"/proc/{child}") for child in children)
    assert list(tmp_path.iterdir()) == []
    if blow == "SIGINT":
        assert process.returncode == 130 and errors.rstrip().endswith("interrupted") and "Traceback" not in errors
