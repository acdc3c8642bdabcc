"""The benchmark against the embedded TensorFlow server, and the real one where it is installed."""

import contextlib
import shutil
import subprocess

import pytest

from serving.benchmark.report import console_text
from serving.benchmark.run import run_benchmark
from serving.benchmark.settings import BenchmarkSettings
from serving.client import Client, ServingError
from tests.refusals import refused
from tests.servers import free_port
from tests.serving.gateway.conftest import wait_until
from tests.serving.model_server.conftest import start

LIMIT = 40


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """A model of LIMIT positions: sums of two embeddings, so that every answer depends on its own tokens alone."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.words = tf.Variable(tf.random.stateless_normal([1000, 8], seed=[1, 2]))

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="input_ids"),
                                      tf.TensorSpec([None], tf.int32, name="lengths")])  # fmt: skip
        def embed(self, input_ids, lengths):
            tf.debugging.assert_less_equal(tf.shape(input_ids)[1], LIMIT, "longer than this model takes")
            mask = tf.sequence_mask(lengths, tf.shape(input_ids)[1], tf.float32)[:, :, None]
            return {"embedding": tf.reduce_sum(tf.gather(self.words, input_ids) * mask, axis=1)}

    path = tmp_path_factory.mktemp("models") / "sums" / "1"
    model = Model()
    tf.saved_model.save(model, str(path), signatures={"serving_default": model.embed})
    return path


@pytest.fixture(scope="module", params=["tensorflow_model_server", "embedded"])
def server(request, saved_model):
    """The gRPC target."""
    port = free_port()
    told = {"port": port, "model_name": "sums", "model_base_path": str(saved_model.parent)}
    with contextlib.ExitStack() as stack:
        if request.param == "embedded":
            # In this process, which has TensorFlow already.
            stack.callback(start(**told).stop)
        elif shutil.which(request.param):
            command = [request.param, *(f"--{name}={value}" for name, value in told.items())]
            stack.callback(stack.enter_context(subprocess.Popen(command, env={"CUDA_VISIBLE_DEVICES": ""})).terminate)
        else:
            pytest.skip("tensorflow_model_server is not on the PATH")
        client = stack.enter_context(Client(f"127.0.0.1:{port}", "sums", timeout_s=2))

        def is_served():
            with contextlib.suppress(ServingError):
                return client.status()[0].state == "AVAILABLE"

        wait_until(is_served, 60)
        yield f"127.0.0.1:{port}"


@pytest.mark.few(1)
def test_a_full_benchmark(server, saved_model):
    # More than 5 s: the process that calls the model without a server imports TensorFlow.
    settings = BenchmarkSettings(
        target=server, model="sums", lengths="8,64", batches="2", seconds=0.4, warmup_seconds=0.1,
        in_process=str(saved_model)
    )  # fmt: skip
    report = run_benchmark(settings)
    (point,), (skipped,) = report["points"], report["skipped"]
    assert (point["length"], point["batch"]) == (8, 2) and not point["errors"]
    assert report["model"]["version"] == 1 and point["answered"] == point["requests"]
    assert skipped["length"] == 64 and "longer than this model takes" in skipped["reason"]
    inside = point["in_process"]
    assert inside["requests"] > 10 and 0 < inside["latency_ms"]["p50"] < inside["first_call_ms"]
    assert inside["differing_answers"] == 0
    assert report["model"]["in_process"]["load_seconds"] > 0 and report["model"]["in_process"]["megabytes"] > 0.03
    assert "in-process p50" in console_text(report)


def test_in_process_says_what_it_needs(server, tmp_path):
    with refused("is not a SavedModel"):
        run_benchmark(BenchmarkSettings(target=server, model="sums", lengths="8", in_process=str(tmp_path)))
