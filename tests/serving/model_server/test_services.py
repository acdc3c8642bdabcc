"""The other RPCs: Classify, Regress, MultiInference, metadata, status and health."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    regression_pb2,
)

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def fill(request, signature, *values, model="default"):
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for value in values:
        request.input.example_list.examples.add().features.feature["x"].float_list.value.append(value)
    return request


def tasks(*pairs, values=(2.0,)):
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in pairs:
        task = request.tasks.add(method_name=method)
        task.model_spec.name = "default"
        task.model_spec.signature_name = signature
    for value in values:
        request.input.example_list.examples.add().features.feature["x"].float_list.value.append(value)
    return request


def test_classify(server):
    response = server.predictions.Classify(fill(classification_pb2.ClassificationRequest(), "classify_x_to_y", 2.0, 3))
    assert [[c.score for c in row.classes] for row in response.result.classifications] == [[3.0], [3.5]]
    assert response.model_spec.signature_name == "classify_x_to_y"
    assert response.model_spec.version.value == 123


def test_regress(server):
    response = server.predictions.Regress(fill(regression_pb2.RegressionRequest(), "regress_x_to_y", 2.0))
    assert [entry.value for entry in response.result.regressions] == [3.0]


def test_context_is_merged_into_every_example(server):
    request = fill(regression_pb2.RegressionRequest(), "regress_x_to_y")
    with_context = request.input.example_list_with_context
    with_context.context.features.feature["x"].float_list.value.append(4.0)
    with_context.examples.add()
    with_context.examples.add().features.feature["x"].float_list.value.append(2.0)
    response = server.predictions.Regress(request)
    assert [entry.value for entry in response.result.regressions] == [4.0, 3.0]


def test_classify_with_labels_and_scores(start_server, build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def label(inputs):
        rows = tf.shape(inputs)[0]
        return {
            "classes": tf.tile([["no", "yes"]], [rows, 1]),
            "scores": tf.tile([[0.25, 0.75]], [rows, 1]),
        }

    build.function(tmp_path / "m" / "1", serving_default=label)
    running = start_server(model_base_path=str(tmp_path / "m"))
    response = running.predictions.Classify(fill(classification_pb2.ClassificationRequest(), "", 1.0))
    (row,) = response.result.classifications
    assert [(c.label, c.score) for c in row.classes] == [("no", 0.25), ("yes", 0.75)]
    body = {"examples": [{"x": 1.0}]}
    assert running.http("POST", "/v1/models/default:classify", body)[1] == {"results": [[["no", 0.25], ["yes", 0.75]]]}


@pytest.mark.parametrize(
    ("rpc", "request_", "code", "message"),
    [
        ("Classify", fill(classification_pb2.ClassificationRequest(), "classify_x_to_y"), "INVALID_ARGUMENT",
         "Input is empty."),
        ("Classify", fill(classification_pb2.ClassificationRequest(), "S", 1.0), "INVALID_ARGUMENT",
         "No signature was found with the name: S"),
        ("Classify", fill(classification_pb2.ClassificationRequest(), "regress_x_to_y", 1.0), "INVALID_ARGUMENT",
         'Expected classification signature outputs to contain at least one of "classes" or "scores". Signature was: '),
        ("Classify", fill(classification_pb2.ClassificationRequest(), "serving_default", 1.0), "INVALID_ARGUMENT",
         "No classification inputs found in SignatureDef: "),
        ("Classify", classification_pb2.ClassificationRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        ("Regress", fill(regression_pb2.RegressionRequest(), "regress_x_to_y"), "INVALID_ARGUMENT", "Input is empty."),
        ("Regress", fill(regression_pb2.RegressionRequest(), "classify_x_to_y", 1.0), "INVALID_ARGUMENT",
         "No regression outputs found in SignatureDef: "),
        ("Regress", fill(regression_pb2.RegressionRequest(), "serving_default", 1.0), "INVALID_ARGUMENT",
         "No regression inputs found in SignatureDef: "),
        ("Regress", fill(regression_pb2.RegressionRequest(), "regress_x_to_y", 1.0, model="nobody"), "NOT_FOUND",
         "Servable not found for request: Latest(nobody)"),
        ("MultiInference", tasks(("regress_x_to_y", REGRESS), ("regress_x_to_y", REGRESS)), "INVALID_ARGUMENT",
         "Duplicate evaluation of signature: regress_x_to_y"),
        ("MultiInference", tasks(("S", REGRESS)), "INVALID_ARGUMENT",
         "Requested signature not found in model graph: S"),
        ("MultiInference", tasks(("regress_x_to_y", "tensorflow/serving/predict")), "UNIMPLEMENTED",
         "Unsupported signature method_name: tensorflow/serving/predict"),
        ("MultiInference", tasks(("regress_x_to_y", REGRESS), values=()), "INVALID_ARGUMENT", "Input is empty."),
    ],
)  # fmt: skip
def test_refusals(server, error_of, rpc, request_, code, message):
    actual, details = error_of(getattr(server.predictions, rpc), request_)
    # What follows a colon and a space is the signature, printed.
    assert (actual, details if message[-2:] != ": " else details[: len(message)]) == (code, message)


@pytest.fixture(scope="module")
def tf2_base(build, tmp_path_factory):
    """half_plus_two as tf.saved_model.save writes it: every method is predict, every signature has its own input."""

    def read(serialized, name):
        return tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([1], tf.float32, 0.0)})[name]

    examples = [tf.TensorSpec([None], tf.string, "inputs")]

    @tf.function(input_signature=examples)
    def classify(inputs):
        return {"scores": read(inputs, "x") / 2 + 2}

    @tf.function(input_signature=examples)
    def regress(inputs):
        return {"outputs": read(inputs, "x") / 2 + 2}

    @tf.function(input_signature=examples)
    def regress2(inputs):
        return {"outputs": read(inputs, "x2") / 2 + 3}

    base = tmp_path_factory.mktemp("tf2")
    build.function(base / "123", classify_x_to_y=classify, regress_x_to_y=regress, regress_x2_to_y=regress2)
    return base


@pytest.mark.parametrize("batching", [False, True])
def test_signatures_of_saved_model_save(start_server, tf2_base, batching):
    running = start_server(model_base_path=str(tf2_base), enable_batching=batching)
    response = running.predictions.Classify(fill(classification_pb2.ClassificationRequest(), "classify_x_to_y", 2.0))
    assert [[c.score for c in row.classes] for row in response.result.classifications] == [[3.0]]
    response = running.predictions.Regress(fill(regression_pb2.RegressionRequest(), "regress_x_to_y", 2.0, 3.0))
    assert [entry.value for entry in response.result.regressions] == [3.0, 3.5]
    request = tasks(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY), ("regress_x2_to_y", REGRESS))
    first, second, third = running.predictions.MultiInference(request).results
    assert first.regression_result.regressions[0].value == 3.0
    assert second.classification_result.classifications[0].classes[0].score == 3.0
    assert third.regression_result.regressions[0].value == 3.0
    for method, name, result in (("classify", "classify_x_to_y", [["", 3.0]]), ("regress", "regress_x_to_y", 3.0)):
        body = {"signature_name": name, "examples": [{"x": 2.0}]}
        assert running.http("POST", f"/v1/models/default:{method}", body)[1] == {"results": [result]}


def test_method_names_are_checked_when_asked_for(start_server, tf2_base, error_of):
    running = start_server(model_base_path=str(tf2_base), enable_signature_method_name_check=True)
    predict = "tensorflow/serving/predict"
    requests = {
        "Classify": fill(classification_pb2.ClassificationRequest(), "classify_x_to_y", 2.0),
        "Regress": fill(regression_pb2.RegressionRequest(), "regress_x_to_y", 2.0),
        "MultiInference": tasks(("regress_x_to_y", REGRESS)),
    }
    for rpc, request in requests.items():
        kind, method = ("classification", CLASSIFY) if rpc == "Classify" else ("regression", REGRESS)
        assert error_of(getattr(running.predictions, rpc), request) == (
            "INVALID_ARGUMENT",
            f"Expected {kind} signature method_name to be {method}. Was: {predict}",
        )
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}]}
    assert running.http("POST", "/v1/models/default:regress", body)[0] == 400


def test_multi_inference(server):
    request = tasks(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY), ("regress_x2_to_y", REGRESS))
    first, second, third = server.predictions.MultiInference(request).results
    assert first.regression_result.regressions[0].value == 3.0
    assert second.classification_result.classifications[0].classes[0].score == 3.0
    assert third.regression_result.regressions[0].value == 3.0
    assert [r.model_spec.signature_name for r in (first, second, third)] == [
        "regress_x_to_y", "classify_x_to_y", "regress_x2_to_y",
    ]  # fmt: skip


def test_multi_inference_of_two_models_is_refused(server, error_of):
    request = tasks(("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY))
    request.tasks[1].model_spec.name = "other"
    assert error_of(server.predictions.MultiInference, request) == (
        "INVALID_ARGUMENT",
        "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
    )


def metadata_request(*fields, model="default"):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = model
    return request


def test_metadata(server):
    response = server.predictions.GetModelMetadata(metadata_request("signature_def"))
    assert response.model_spec.version.value == 123
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) == {
        "serving_default", "classify_x_to_y", "regress_x_to_y", "regress_x2_to_y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (metadata_request(), "INVALID_ARGUMENT", "GetModelMetadataRequest must specify at least one metadata_field"),
        (metadata_request("foo"), "INVALID_ARGUMENT", "Metadata field foo is not supported"),
        (metadata_request("signature_def", model="nobody"), "NOT_FOUND",
         "Servable not found for request: Latest(nobody)"),
        (get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"]), "INVALID_ARGUMENT",
         "Missing ModelSpec"),
    ],
)  # fmt: skip
def test_metadata_refusals(server, error_of, request_, code, message):
    assert error_of(server.predictions.GetModelMetadata, request_) == (code, message)


def test_status(server, error_of):
    request = get_model_status_pb2.GetModelStatusRequest()
    assert error_of(server.models.GetModelStatus, request) == ("INVALID_ARGUMENT", "Missing ModelSpec")
    request.model_spec.name = "default"
    request.model_spec.version_label = "ignored"
    (entry,) = server.models.GetModelStatus(request).model_version_status
    assert (entry.version, entry.state, entry.status.error_code) == (123, entry.AVAILABLE, 0)
    request.model_spec.version.value = 9
    assert error_of(server.models.GetModelStatus, request) == (
        "NOT_FOUND",
        "Could not find version 9 of model default",
    )


def test_health(start_server, half_plus_two, server, error_of):
    running = start_server(model_base_path=str(half_plus_two), enable_grpc_healthcheck_service=True)
    check = health_pb2_grpc.HealthStub(running.channel).Check
    for name in ("", "ModelService", "PredictionService"):
        assert check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
    assert error_of(check, health_pb2.HealthCheckRequest(service="other"))[0] == "NOT_FOUND"
    watch = health_pb2_grpc.HealthStub(running.channel).Watch
    assert next(iter(watch(health_pb2.HealthCheckRequest(service="")))).status == health_pb2.HealthCheckResponse.SERVING
    for index in range(10):
        stream = watch(health_pb2.HealthCheckRequest(service=f"invented {index}"))
        assert next(iter(stream)).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        stream.cancel()
    assert not any("invented" in name for name in running.server._grpc._health._send_response_callbacks)

    def watch_and_leave(_):
        for _ in range(100):
            stream = watch(health_pb2.HealthCheckRequest(service=""), timeout=20)
            assert next(iter(stream)).status == health_pb2.HealthCheckResponse.SERVING
            stream.cancel()

    # Watches that end while others begin stop nobody.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(watch_and_leave, range(4)))
    plain = health_pb2_grpc.HealthStub(server.channel).Check
    assert error_of(plain, health_pb2.HealthCheckRequest())[0] == "UNIMPLEMENTED"
