"""Warm-up files: replayed before the version is served, and fatal to it when they fail."""

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2

from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import wait_until
from tests.serving.model_server.models import export_half_plus_two, export_held

PREDICT = 'predict_log { request { model_spec { name: "some other name" %s } inputs { key: "%s" value { ' + (
    "dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 1 } } } }"
)
GOOD, NO_SIGNATURE, NO_INPUT = PREDICT % ("", "x"), PREDICT % ('signature_name: "S"', "x"), PREDICT % ("", "zz")
EXAMPLE = '%s_log { request { model_spec { signature_name: "%s_x_to_y" } input { example_list { examples {} } } } }'
MULTI = (
    'multi_inference_log { request { tasks { method_name: "tensorflow/serving/regress" model_spec { name: "m" '
    'signature_name: "regress_x_to_y" } } input { example_list { examples {} } } } }'
)


def export_with(base, *logs, export=export_half_plus_two):
    """half_plus_two with a warm-up file of these records: a log as text, or bytes."""
    version = export(base / "1")
    (version / "assets.extra").mkdir()
    file = version / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs:
            is_text = isinstance(log, str)
            record = text_format.Parse(log, prediction_log_pb2.PredictionLog()) if is_text else log
            writer.write(record.SerializeToString() if is_text else record)
    return file


def test_every_kind_is_replayed(start_server, tmp_path, caplog, counted):
    file = export_with(
        tmp_path / "m", GOOD, EXAMPLE % ("classify", "classify"), EXAMPLE % ("regress", "regress"), MULTI
    )
    before = counted("runtime_latency_count", model_name="default", API="MultiInference", runtime="TF1")
    with caplog.at_level("INFO"):
        running = start_server(model_base_path=tmp_path / "m", num_request_iterations_for_warmup=3)
    assert running.predict(2.0) == [3.0]
    assert counted("runtime_latency_count", model_name="default", API="MultiInference", runtime="TF1") - before == 3
    assert counted("model_warmup_records_read", model_path=str(tmp_path / "m" / "1")) == 4
    assert f"Finished reading warmup data for model at {file}. Number of warmup records read: 4." in caplog.text


@pytest.mark.parametrize(
    "logs, message",
    [
        ([GOOD, NO_SIGNATURE], 'Serving signature key "S" not found.'),
        ([GOOD, NO_INPUT], "Signature input alias: x"),
        ([GOOD, "session_run_log {}"], "Unsupported log_type for warmup"),
        ([GOOD, b"\xff\xff"], "Failed to parse warmup record"),
        ([GOOD] * 1001, r"Number of warmup records exceeds the maximum \(1000\) at .*tf_serving_warmup_requests"),
        (None, "Please verify your warmup data is in TFRecord format"),
    ],
    ids=["signature", "input", "kind", "bytes", "number", "no record file"],
)
def test_a_failing_record_fails_the_load_unless_warm_up_is_off(start_server, tmp_path, logs, message):
    file = export_with(tmp_path / "m", *(logs or []))
    if logs is None:
        file.write_bytes(b"this is no TFRecord file at all, whatever its name")
    with pytest.raises(StatusError, match=message):
        start_server(model_base_path=tmp_path / "m")
    running = start_server(model_base_path=tmp_path / "m", enable_model_warmup=False)
    assert running.predict(2.0) == [3.0]


def test_batched_model_is_warmed_up_too(start_server, tmp_path, counted):
    """By a thread pool with a name of its own, where no parameters give it one."""
    export_with(tmp_path / "m", GOOD)
    metric = {"name": "batching_session:queuing_latency_count", "thread_pool_name": "model_server_batch_threads"}
    queued = counted(**metric)
    start_server(model_base_path=tmp_path / "m", enable_batching=True)
    assert counted(**metric) == queued + 1


def test_a_version_that_is_warmed_up_does_not_hold_up_the_only_batch_thread(start_server, tmp_path, held_run):
    base, parameters = tmp_path / "m", tmp_path / "batching.config"
    export_half_plus_two(base / "1")
    parameters.write_text("num_batch_threads { value: 1 }")
    running = start_server(model_base_path=base, enable_batching=True, batching_parameters_file=parameters)
    tensor = f'dtype: DT_STRING tensor_shape {{ dim {{ size: 1 }} }} string_val: "{held_run.folder}"'
    log = 'predict_log { request { inputs { key: "text" value { ' + tensor + " } } } }"
    export_with(tmp_path / "new", log, export=export_held)
    (tmp_path / "new" / "1").rename(base / "2")
    held_run.wait_until_it_runs()
    try:
        assert running.predict(2.0, timeout=20) == [3.0]
    finally:
        held_run.finish()
    # Afterwards its batches run on the thread that all share.
    wait_until(lambda: running.server.core._manager.available("default") == [2])
    with running.server.core._manager.use("default") as version:
        assert version.servable._model._scheduler is running.server.core._batching._scheduler
