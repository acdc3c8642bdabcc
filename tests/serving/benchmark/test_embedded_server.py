"""The benchmark against the real TensorFlow server where it is installed, or the embedded one."""

import shutil

import numpy as np
import pytest

from serving.benchmark.in_process import agree
from serving.benchmark.report import console_text, to_csv
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from tests.refusals import refused
from tests.servers import free_port, running_server
from tests.serving.model_server.conftest import start


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    """The gRPC target."""
    base = str(exported("ids").parent)
    if shutil.which("tensorflow_model_server"):
        with running_server({"ids": base}, tmp_path_factory.mktemp("server"), free_port()) as target:
            yield target
    else:
        # In this process, which has TensorFlow already.
        running = start(model_name="ids", model_base_path=base)
        yield running.address
        running.stop()


def test_a_full_benchmark(server, exported, tokenizer, monkeypatch):
    # More than 5 s: the process that calls the model without a server imports TensorFlow.
    monkeypatch.setattr("serving.benchmark.workload._HIGHEST_ID", tokenizer.vocab_size)
    settings = BenchmarkSettings(
        target=server, model="ids", lengths="8,64", batches="2", seconds=0.4, warmup_seconds=0.1,
        in_process=str(exported("ids"))
    )  # fmt: skip
    report = run_benchmark(settings)
    (point,), (skipped,) = report["points"], report["skipped"]
    assert (point["length"], point["batch"]) == (8, 2) and not point["errors"]
    assert report["model"]["version"] == 1 and point["answered"] == point["requests"]
    assert skipped["length"] == 64 and "longer than the 48 tokens" in skipped["reason"]
    inside = point["in_process"]
    assert inside["requests"] > 10 and 0 < inside["latency_ms"]["p50"] < inside["first_call_ms"]
    assert inside["differing_answers"] == 0
    assert report["model"]["in_process"]["load_seconds"] > 0 and report["model"]["in_process"]["megabytes"] > 0.03
    inside["differing_answers"] = 1
    printed, table = console_text(report), to_csv(report)
    assert "1 served answers are not what the model says in process" in printed and "in-process p50" in printed
    assert "in_process_p50_ms" in table and f",{inside['latency_ms']['p50']}," in table
    for other, agrees in ((0.5 + 1e-7, True), (0.6, False)):
        assert agree({"y": np.float32([0.5])}, {"y": np.float32([other])}) is agrees


def test_in_process_says_what_it_needs(server, tmp_path):
    with refused("is not a SavedModel"):
        run_benchmark(BenchmarkSettings(target=server, model="ids", lengths="8", in_process=str(tmp_path)))
