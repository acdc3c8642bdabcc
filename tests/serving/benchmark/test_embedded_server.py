"""The benchmark against the embedded TensorFlow server, and the real one where it is installed."""

import contextlib
import shutil
import subprocess

import pytest

from serving.benchmark.report import console_text
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from serving.client import Client, ServingError
from tests.servers import free_port
from tests.serving.gateway.conftest import wait_until
from tests.serving.model_server.conftest import start
from tfrecords.base.errors import UserError


@pytest.fixture(scope="module")
def saved_model(exported):
    return exported("ids")


@pytest.fixture(scope="module", params=["tensorflow_model_server", "embedded"])
def server(request, saved_model):
    """The gRPC target."""
    port = free_port()
    told = {"port": port, "model_name": "film", "model_base_path": str(saved_model.parent)}
    with contextlib.ExitStack() as stack:
        if request.param == "embedded":
            # In this process, which has TensorFlow already.
            stack.callback(start(**told).stop)
        elif shutil.which(request.param):
            command = [request.param, *(f"--{name}={value}" for name, value in told.items())]
            stack.callback(stack.enter_context(subprocess.Popen(command, env={"CUDA_VISIBLE_DEVICES": ""})).terminate)
        else:
            pytest.skip("tensorflow_model_server is not on the PATH")
        client = stack.enter_context(Client(f"127.0.0.1:{port}", "film", timeout_s=2))

        def is_served():
            with contextlib.suppress(ServingError):
                return client.status()[0].state == "AVAILABLE"

        wait_until(is_served, 60)
        yield f"127.0.0.1:{port}"


@pytest.mark.few(1)
def test_a_full_benchmark(server, saved_model):
    # More than 5 s: the process that calls the model without a server imports TensorFlow.
    settings = BenchmarkSettings(
        target=server, model="film", lengths="8,64", batches="2", seconds=0.4, warmup_seconds=0.1,
        in_process=str(saved_model),
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
    assert "in-process p50" in console_text(report)


def test_in_process_says_what_it_needs(server, tmp_path):
    with pytest.raises(UserError, match="is not a SavedModel"):
        run_benchmark(BenchmarkSettings(target=server, model="film", lengths="8", in_process=str(tmp_path)))
