"""Warm-up files: replayed before the version is served, and fatal to it when they fail."""

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from serving.model_server.status import StatusError


def predict_log(signature="", **inputs):
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.name = "some other name"
    log.predict_log.request.model_spec.signature_name = signature
    for name, value in inputs.items():
        log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log


def example_log(kind, signature):
    log = prediction_log_pb2.PredictionLog()
    request = getattr(log, kind).request
    request.model_spec.signature_name = signature
    example = request.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(1.0)
    return log


def multi_log():
    log = prediction_log_pb2.PredictionLog()
    task = log.multi_inference_log.request.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.name = "m"
    task.model_spec.signature_name = "regress_x_to_y"
    log.multi_inference_log.request.input.example_list.examples.add()
    return log


def export_with(build, base, *logs):
    version = build.half_plus_two(base / "1")
    (version / "assets.extra").mkdir()
    file = version / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs:
            writer.write(log if isinstance(log, bytes) else log.SerializeToString())
    return file


def test_every_kind_is_replayed(start_server, build, tmp_path, caplog, counted):
    file = export_with(
        build, tmp_path / "m", predict_log(x=[[1.0]]), example_log("classify_log", "classify_x_to_y"),
        example_log("regress_log", "regress_x_to_y"), multi_log(),
    )  # fmt: skip
    before = counted("runtime_latency_count", model_name="default", API="MultiInference", runtime="TF1")
    with caplog.at_level("INFO"):
        running = start_server(model_base_path=str(tmp_path / "m"), num_request_iterations_for_warmup=3)
    assert running.predict(2.0) == [3.0]
    assert counted("runtime_latency_count", model_name="default", API="MultiInference", runtime="TF1") - before == 3
    assert counted("model_warmup_records_read", model_path=str(tmp_path / "m" / "1")) == 4
    assert f"Finished reading warmup data for model at {file}. Number of warmup records read: 4." in caplog.text


def test_no_file_is_fine(start_server, build, tmp_path, caplog):
    build.half_plus_two(tmp_path / "m" / "1")
    with caplog.at_level("INFO"):
        start_server(model_base_path=str(tmp_path / "m"))
    assert "No warmup data file found at" in caplog.text


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (predict_log("S"), 'Serving signature key "S" not found.'),
        (predict_log(zz=[1.0]), "Signature input alias: x"),
        (prediction_log_pb2.PredictionLog(session_run_log={}), "Unsupported log_type for warmup"),
        (b"\xff\xff", "Failed to parse warmup record"),
    ],
)
@pytest.mark.few(2)
def test_a_failing_record_fails_the_load(start_server, build, tmp_path, log, message):
    export_with(build, tmp_path / "m", predict_log(x=[[1.0]]), log)
    with pytest.raises(StatusError, match=message):
        start_server(model_base_path=str(tmp_path / "m"))
    running = start_server(model_base_path=str(tmp_path / "m"), enable_model_warmup=False)
    assert running.predict(2.0) == [3.0]


def test_not_a_record_file(start_server, build, tmp_path):
    file = export_with(build, tmp_path / "m")
    file.write_bytes(b"this is no TFRecord file at all, whatever its name")
    with pytest.raises(StatusError, match="Please verify your warmup data is in TFRecord format"):
        start_server(model_base_path=str(tmp_path / "m"))


def test_too_many_records(start_server, build, tmp_path):
    log = predict_log(x=[[1.0]]).SerializeToString()
    file = export_with(build, tmp_path / "m", *[log] * 1001)
    with pytest.raises(StatusError) as caught:
        start_server(model_base_path=str(tmp_path / "m"))
    assert f"Number of warmup records exceeds the maximum (1000) at {file}" in str(caught.value)


def test_batched_model_is_warmed_up_too(start_server, build, tmp_path, counted):
    export_with(build, tmp_path / "m", predict_log(x=[[1.0]]))
    runs = counted("batching_session:wrapped_run_count")
    start_server(model_base_path=str(tmp_path / "m"), enable_batching=True)
    assert counted("batching_session:wrapped_run_count") == runs + 1
