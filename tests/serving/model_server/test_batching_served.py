"""Batching behind the server: its flags and files, and requests of many clients."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.model_server.status import StatusError


def test_behind_the_server(start_server, half_plus_two, tmp_path, counted):
    file = tmp_path / "batching.config"
    file.write_text(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 20000 } num_batch_threads { value: 1 } "
        'thread_pool_name { value: "pool" } allowed_batch_sizes: 4 allowed_batch_sizes: 8'
    )
    running = start_server(model_base_path=str(half_plus_two), enable_batching=True, batching_parameters_file=str(file))
    runs = counted("batching_session:wrapped_run_count")
    queued = counted("batching_session:queuing_latency_count", thread_pool_name="pool")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda v: running.predict(float(v)), range(8)))
    assert answers == [[v / 2 + 2] for v in range(8)]
    assert 1 <= counted("batching_session:wrapped_run_count") - runs < 8
    assert counted("batching_session:queuing_latency_count", thread_pool_name="pool") - queued == 8
    status, answer, _ = running.http("POST", "/v1/models/default:predict", {"inputs": 2.0})
    assert (status, answer["error"]) == (400, "Batching Run() input tensors must have at least one dimension")
    status, answer, _ = running.http("POST", "/v1/models/default:predict", {"instances": [1.0] * 9})
    assert answer == {"error": "Task size 9 is larger than maximum input batch size 8"}


def test_the_thread_pool_has_a_name_without_a_parameters_file(start_server, half_plus_two, counted):
    running = start_server(model_base_path=str(half_plus_two), enable_batching=True)
    metric = {"name": "batching_session:queuing_latency_count", "thread_pool_name": "model_server_batch_threads"}
    queued = counted(**metric)
    running.predict(2.0)
    assert counted(**metric) == queued + 1


def test_parameters_per_model(start_server, build, tmp_path):
    base = tmp_path / "m"
    build.half_plus_two(base / "1")
    running = start_server(model_base_path=str(base), enable_batching=True, enable_per_model_batching_parameters=True)
    path = "/v1/models/default:predict"
    assert running.http("POST", path, {"inputs": 2.0})[1] == {"outputs": 3.0}, "no file: not batched"
    build.half_plus_two(tmp_path / "2")
    (tmp_path / "2" / "batching_params.pbtxt").write_text("max_batch_size { value: 2 }")
    (tmp_path / "2").rename(base / "2")
    for _ in range(500):
        status, answer, _ = running.http("POST", path, {"instances": [1.0, 2.0, 3.0]})
        if status == 400:
            break
        threading.Event().wait(0.02)
    assert answer == {"error": "Task size 3 is larger than maximum input batch size 2"}


def test_parameters_that_do_not_fit_fail_the_load(start_server, half_plus_two, tmp_path):
    file = tmp_path / "batching.config"
    file.write_text("max_batch_size { value: 4 } allowed_batch_sizes: 8")
    with pytest.raises(StatusError, match="Last entry in allowed_batch_sizes must match max_batch_size"):
        start_server(model_base_path=str(half_plus_two), enable_batching=True, batching_parameters_file=str(file))
    file.write_text("num_batch_threads { value: 0 }")
    with pytest.raises(StatusError, match="num_batch_threads must be positive; was 0"):
        start_server(model_base_path=str(half_plus_two), enable_batching=True, batching_parameters_file=str(file))
    with pytest.raises(StatusError, match=r"without setting server_options\.enable_batching to true"):
        start_server(model_base_path=str(half_plus_two), batching_parameters_file=str(file))


def batched(base, start_server, tmp_path, parameters):
    file = tmp_path / "batching.config"
    file.write_text(parameters)
    return start_server(model_base_path=str(base), enable_batching=True, batching_parameters_file=str(file))


def predict_request(array, dtype=None):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(array, dtype))
    return request


@pytest.mark.parametrize("padding", ["true", "false"])
def test_one_client_s_bad_requests_fail_no_other_s(start_server, build, tmp_path, padding):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def double(x):
        return {"y": tf.ensure_shape(x, [None, 2]) * 2}

    build.function(tmp_path / "m" / "1", serving_default=double)
    running = batched(tmp_path / "m", start_server, tmp_path,
                      "max_batch_size { value: 64 } batch_timeout_micros { value: 3000 } "
                      f"num_batch_threads {{ value: 1 }} pad_variable_length_inputs: {padding}")  # fmt: skip
    good = predict_request([[1.0, 2.0]], tf.float32)
    bad = [
        predict_request([[1]]),
        predict_request([["text"]]),
        predict_request([[[1.0]]]),
        predict_request([[1.0, 2.0, 3.0]], tf.float32),
        predict_request(np.zeros((1, 0), np.float32)),
    ]
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(running.predictions.Predict, good) for _ in range(20)]
        refusals = [pool.submit(running.predictions.Predict, request) for request in bad * 10]
        answers += [pool.submit(running.predictions.Predict, good) for _ in range(20)]
        for answer in answers:
            assert list(answer.result().outputs["y"].float_val) == [2.0, 4.0]
        assert {refusal.exception().code().name for refusal in refusals} == {"INVALID_ARGUMENT"}
