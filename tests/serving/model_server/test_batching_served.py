"""Batching behind the server: its flags and files, the recipe's parameters, and requests of many clients."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from serving.client import Client
from serving.client.messages import MAX_ROWS
from serving.gateway.settings import GatewayOptions
from serving.model_server import flags
from serving.model_server.status import StatusError
from serving.wire.protos import BatchingParameters
from tests.serving.model_server.conftest import predict_request, wait_until
from tests.serving.model_server.models import export_function, export_half_plus_two, signature

PREDICT = "/v1/models/default:predict"
RECIPE = Path(flags.__file__).parents[1] / "deploy" / "batching.config"


@pytest.fixture
def batched(start_server, tmp_path):
    """batched(parameters, **flags): a server that batches by a file of them."""

    def start(parameters, **options):
        (tmp_path / "batching.config").write_text(parameters)
        file = tmp_path / "batching.config"
        return start_server(**{"enable_batching": True, "batching_parameters_file": file} | options)

    return start


def test_behind_the_server(batched, counted):
    running = batched(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 20000 } num_batch_threads { value: 1 } "
        'thread_pool_name { value: "pool" } allowed_batch_sizes: 4 allowed_batch_sizes: 8'
    )
    runs = counted("batching_session:wrapped_run_count")
    queued = counted("batching_session:queuing_latency_count", thread_pool_name="pool")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda v: running.predict(float(v)), range(8)))
    assert answers == [[v / 2 + 2] for v in range(8)]
    assert 1 <= counted("batching_session:wrapped_run_count") - runs <= 8
    assert counted("batching_session:queuing_latency_count", thread_pool_name="pool") - queued == 8
    for body, message in (
        ({"inputs": 2.0}, "Batching Run() input tensors must have at least one dimension"),
        ({"instances": [1.0] * 9}, "Task size 9 is larger than maximum input batch size 8"),
    ):
        assert running.http("POST", PREDICT, body)[:2] == (400, {"error": message})
    # The client reads the limit in that sentence, and sends the rows in parts.
    with Client(running.address, "default") as client:
        assert client.predict({"x": np.ones((20, 1), np.float32)})["y"].tolist() == [[2.5]] * 20


def test_parameters_per_model(start_server, tmp_path):
    base = tmp_path / "m"
    export_half_plus_two(base / "1")
    running = start_server(model_base_path=base, enable_batching=True, enable_per_model_batching_parameters=True)
    assert running.http("POST", PREDICT, {"inputs": 2.0})[1] == {"outputs": 3.0}, "no file: not batched"
    export_half_plus_two(tmp_path / "2")
    (tmp_path / "2" / "batching_params.pbtxt").write_text("max_batch_size { value: 2 }")
    (tmp_path / "2").rename(base / "2")
    refused = {"error": "Task size 3 is larger than maximum input batch size 2"}
    wait_until(lambda: running.http("POST", PREDICT, {"instances": [1.0, 2.0, 3.0]})[1] == refused)


@pytest.mark.parametrize(
    "parameters, enabled, message",
    [
        ("max_batch_size { value: 4 } allowed_batch_sizes: 8", True, "Last entry in allowed_batch_sizes must match"),
        ("num_batch_threads { value: 0 }", True, "num_batch_threads must be 1 to 4096; was 0"),
        ("num_batch_threads { value: 1000000000 }", True, "num_batch_threads must be 1 to 4096; was 1000000000"),
        ("", False, r"without setting server_options\.enable_batching to true"),
    ],
)
def test_parameters_that_do_not_fit_fail_the_start(batched, parameters, enabled, message):
    with pytest.raises(StatusError, match=message):
        batched(parameters, enable_batching=enabled)


@pytest.mark.parametrize("padding", ["true", "false"])
def test_one_client_s_bad_requests_fail_no_other_s(batched, tmp_path, padding):
    @signature(x=([None, 2], tf.float32))
    def double(x):
        return {"y": tf.ensure_shape(x, [None, 2]) * 2}

    export_function(tmp_path / "m" / "1", serving_default=double)
    running = batched(
        "max_batch_size { value: 64 } batch_timeout_micros { value: 3000 } num_batch_threads { value: 1 } "
        f"max_enqueued_batches {{ value: 100 }} pad_variable_length_inputs: {padding}",
        model_base_path=tmp_path / "m",
    )
    good = predict_request(x=[[1.0, 2.0]])
    bad = [[[1]], [["text"]], [[[1.0]]], [[1.0, 2.0, 3.0]], np.zeros((1, 0), np.float32)]
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(running.predictions.Predict, good) for _ in range(20)]
        refusals = [pool.submit(running.predictions.Predict, predict_request(x=value)) for value in bad * 5]
        answers += [pool.submit(running.predictions.Predict, good) for _ in range(20)]
        for answer in answers:
            assert list(answer.result().outputs["y"].float_val) == [2.0, 4.0]
        assert {refusal.exception().code().name for refusal in refusals} == {"INVALID_ARGUMENT"}


def test_the_recipe_answers_many_rows_and_an_axis_as_long_as_the_longest(batched, tmp_path):
    assert batched(RECIPE.read_text()).predict(*range(256)) == [x / 2 + 2 for x in range(256)]

    @signature(text=([None], tf.string))
    def words(text):
        return {"words": tf.strings.split(text).to_tensor()}

    export_function(tmp_path / "m" / "1", serving_default=words)
    server = batched(RECIPE.read_text(), model_base_path=tmp_path / "m")
    with Client(server.address, "default") as client:
        assert client.predict_text(["a fine film"] * 8 + ["one that is longer by some words"])["words"].shape == (9, 7)


def test_the_recipe_uses_only_what_every_server_takes():
    batching = text_format.Parse(RECIPE.read_text(), BatchingParameters())
    # The real server cannot join the parts of an answer where they have another number of tokens or words.
    assert not batching.enable_large_batch_splitting.value and not batching.allowed_batch_sizes
    assert batching.max_batch_size.value >= max(MAX_ROWS, GatewayOptions().max_batch_rows)
    assert batching.max_enqueued_batches.value >= 2, "the largest request waits for another"
