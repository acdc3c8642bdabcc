"""The contract of gRPC requests: each request as text, and the answer, or the status and its sentence."""

import string

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message_factory import GetMessageClass
from tensorflow_serving.apis import model_service_pb2, predict_pb2, prediction_service_pb2

from serving.wire.tensors import named_tensors
from tests.refusals import table_of
from tests.serving.model_server.conftest import predict_request, start, status_of
from tests.serving.model_server.models import DTYPES

# Parts of many requests.
PARTS = dict(
    line.split(" = ", 1)
    for line in r"""
default = model_spec { name: "default" }
x = inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 2 } }
y = outputs { key: "y" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 3 } }
served = model_spec { name: "default" version { value: 123 } signature_name: "serving_default" }
two = value { dtype: DT_FLOAT tensor_shape {} float_val: 2 }
three = value { dtype: DT_FLOAT tensor_shape {} float_val: 3 }
two_of_one = tensor_shape { dim { size: 2 } dim { size: 1 } }
one = tensor_shape { dim { size: 1 } }
example_1 = examples { features { feature { key: "x" value { float_list { value: 1 } } } } }
example_2 = examples { features { feature { key: "x" value { float_list { value: 2 } } } } }
example_3 = examples { features { feature { key: "x" value { float_list { value: 3 } } } } }
version = model_spec { name: "default" version { value: 123 }
zoo = model_spec { name: "zoo" version { value: 1 } signature_name:
of = model_spec { name: "default" signature_name:
of_zoo = model_spec { name: "zoo" signature_name:
""".strip().splitlines()
) | {"long": 5000 * "s", "cut": 1001 * "s"}
REQUESTS = [string.Template(line).substitute(PARTS).split(" | ") for line in table_of(__file__)]
# The wheel's own messages, not the server's.
REQUEST_TYPES = {
    method.name: GetMessageClass(method.input_type)
    for file in (prediction_service_pb2, model_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def check(running, method, request, answer):
    """An answer that ends with "..." goes on with a signature, printed."""
    stub = getattr(running.models if method == "GetModelStatus" else running.predictions, method)
    message = text_format.Parse("" if request == "-" else request, REQUEST_TYPES[method]())
    if answer.partition(": ")[0].isupper():
        status = status_of(stub, message, timeout=60)
        assert (status[: len(answer) - 3] + "..." if answer.endswith(": ...") else status) == answer
    else:
        response = stub(message, 60)
        assert response == text_format.Parse(answer, type(response)())


@pytest.mark.parametrize("method, request_, answer", REQUESTS, ids=range(len(REQUESTS)))
def test_a_request_has_this_answer(server, method, request_, answer):
    check(server, method, request_, answer)


@pytest.fixture(scope="module")
def others(zoo):
    """Of the zoo, one server that batches and one that checks the methods of signatures."""
    options = {"model_name": "zoo", "model_base_path": str(zoo)}
    running = start(**options, enable_batching=True), start(**options, enable_signature_method_name_check=True)
    yield running
    for one in running:
        one.stop()


def test_the_method_of_predict_is_checked_on_request(others):
    status = status_of(others[1].predictions.Predict, predict_request("zoo", "constant"))
    assert status.startswith("INVALID_ARGUMENT: Expected prediction signature method_name to be")
    assert status.endswith("Was: my/method")


@pytest.mark.parametrize("method", ["Classify", "Regress", "MultiInference"])
def test_signatures_of_saved_model_save_are_batched_and_their_methods_checked_on_request(others, method):
    ((_, request, answer), *_) = [row for row in REQUESTS if row[0] == method and '"zoo"' in row[1]]
    batching, checking = others
    check(batching, method, request, answer)
    kind, name = ("classification", "classify") if method == "Classify" else ("regression", "regress")
    expected = f"Expected {kind} signature method_name to be tensorflow/serving/{name}. Was: tensorflow/serving/predict"
    check(checking, method, request, f"INVALID_ARGUMENT: {expected}")
    if method == "Regress":
        body = {"signature_name": name, "examples": [{"x": 2.0}]}
        assert batching.http("POST", "/v1/models/zoo:regress", body)[1] == {"results": [3.0]}
        assert checking.http("POST", "/v1/models/zoo:regress", body)[:2] == (400, {"error": expected})


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_as_it_went(server, name):
    dtype = tf.as_dtype(name)
    values = [[b"\xff\x00", b"", b"ab"]] if name == "string" else tf.cast([[1, 0, 3]], dtype).numpy()
    value = tf.make_tensor_proto(values, dtype)
    # Both of the server's readers are met: by way of its own writer, the values are in a list.
    listed = named_tensors(1, {"y": tf.make_ndarray(value)})
    for sent in (value, predict_pb2.PredictResponse.FromString(listed).outputs["y"]):
        output = server.predictions.Predict(predict_request("zoo", name, x=sent)).outputs["y"]
        assert output.dtype == value.dtype
        np.testing.assert_array_equal(tf.make_ndarray(output), tf.make_ndarray(value))
