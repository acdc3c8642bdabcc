"""The contract of gRPC requests: each request as text, and the answer, or the status and its sentence."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import predict_pb2

from serving.model_server.services import METHODS
from serving.wire.tensors import named_tensors
from tests.serving.model_server.conftest import predict_request, start, status_of
from tests.serving.model_server.models import DTYPES

DEFAULT, NOBODY = 'model_spec { name: "default" } ', 'model_spec { name: "nobody" } '
VERSION = 'model_spec { name: "default" version { value: 123 } '
SERVED = VERSION + 'signature_name: "serving_default" } '
X = 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 2 } } '
Y = 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 3 } } '
TWO = "value { dtype: DT_FLOAT tensor_shape {} float_val: 2 } "
THREE = "value { dtype: DT_FLOAT tensor_shape {} float_val: 3 } "


def of(signature: str, model: str = "default") -> str:
    return f'model_spec {{ name: "{model}" signature_name: "{signature}" }} '


def zoo(signature: str) -> str:
    return f'model_spec {{ name: "zoo" version {{ value: 1 }} signature_name: "{signature}" }} '


def given(*numbers: int) -> str:
    """An example for each number."""
    example = 'examples { features { feature { key: "x" value { float_list { value: %d } } } } } '
    return "input { example_list { " + "".join(example % number for number in numbers) + "} } "


def task(signature: str, method: str = "regress", model: str = "default") -> str:
    return f'tasks {{ {of(signature, model)} method_name: "tensorflow/serving/{method}" }} '


def result(signature: str, text: str) -> str:
    return f'results {{ {VERSION} signature_name: "{signature}" }} {text} }} '


PREDICT = {
    DEFAULT + 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 1 } } '
    "float_val: [2, 3] } }":
    SERVED + 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 1 } } '
    "float_val: [3, 3.5] } }",
    # Shapes are not checked against the signature, and a list shorter than its shape repeats its last value.
    DEFAULT + 'inputs { key: "x" ' + TWO + "}": SERVED + 'outputs { key: "y" ' + THREE + "}",
    DEFAULT
    + 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 1 } dim { size: 2 } } '
    "float_val: [1, 2] } }": SERVED
    + 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 1 } dim { size: 2 } } '
    "float_val: [2.5, 3, 3, 3] } }",
    DEFAULT
    + 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 0 } dim { size: 1 } } } }': SERVED
    + 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape { dim { size: 0 } dim { size: 1 } } } }',
    VERSION + "}" + X: SERVED + Y,
    of("constant", "zoo"): zoo("constant")
    + 'outputs { key: "a" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 1 } }'
    'outputs { key: "b" value { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: [2, 3] } }',
    of("constant", "zoo") + 'output_filter: "b"': zoo("constant")
    + 'outputs { key: "b" value { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: [2, 3] } }',
    # A constant whose input is of unknown shape, as TensorFlow Serving's own suite saves one.
    of("fixed", "zoo") + X: zoo("fixed") + 'outputs { key: "y" ' + TWO + "}",
    # q has a default, 10.
    of("add", "zoo") + 'inputs { key: "p" ' + TWO + "}": zoo("add")
    + 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape {} float_val: 12 } }',
    of("add", "zoo") + 'inputs { key: "p" ' + TWO + '} inputs { key: "q" ' + THREE + "}": zoo("add")
    + 'outputs { key: "y" value { dtype: DT_FLOAT tensor_shape {} float_val: 5 } }',
    # As a C++ client's AsProtoTensorContent writes strings: all sizes, then all bytes.
    of("string", "zoo") + 'inputs { key: "x" value { dtype: DT_STRING tensor_shape { dim { size: 2 } dim { size: 1 } } '
    r'tensor_content: "\001\002abc" } }': zoo("string")
    + 'outputs { key: "y" value { dtype: DT_STRING tensor_shape { dim { size: 2 } dim { size: 1 } } '
    'string_val: ["a", "bc"] } }',
    of("bool", "zoo")
    + r'inputs { key: "x" value { dtype: DT_BOOL tensor_shape { dim { size: 3 } } tensor_content: "\000\001\001" } }':
    zoo("bool") + 'outputs { key: "y" value { dtype: DT_BOOL tensor_shape { dim { size: 3 } } '
    "bool_val: [false, true, true] } }",
    # TensorFlow reads no other bytes as bools.
    of("bool", "zoo") + r'inputs { key: "x" value { dtype: DT_BOOL tensor_shape {} tensor_content: "\005" } }':
    "INVALID_ARGUMENT: tensor parsing error: x",
    # The last value fills the shape, with its zero bytes; so does one without dimensions come back.
    of("string", "zoo") + r'inputs { key: "x" value { dtype: DT_STRING tensor_shape { dim { size: 2 } } '
    r'string_val: "a\000" } }': zoo("string")
    + r'outputs { key: "y" value { dtype: DT_STRING tensor_shape { dim { size: 2 } } '
    r'string_val: ["a\000", "a\000"] } }',
    of("string", "zoo") + r'inputs { key: "x" value { dtype: DT_STRING tensor_shape {} string_val: "a\000" } }':
    zoo("string") + r'outputs { key: "y" value { dtype: DT_STRING tensor_shape {} string_val: "a\000" } }',
    # TensorFlow quotes in its own message what is no UTF-8.
    of("number", "zoo") + r'inputs { key: "x" value { dtype: DT_STRING tensor_shape { dim { size: 1 } } '
    r'string_val: "\377\376" } }': "INVALID_ARGUMENT: StringToNumberOp could not correctly convert string: ...",
    "": "INVALID_ARGUMENT: Missing ModelSpec",
    "model_spec {}": "INVALID_ARGUMENT: ModelSpec has no name specified.",
    NOBODY: "NOT_FOUND: Servable not found for request: Latest(nobody)",
    'model_spec { name: "default" version { value: 99 } }' + X:
    "NOT_FOUND: Servable not found for request: Specific(default, 99)",
    'model_spec { name: "default" version_label: "L" }' + X:
    "INVALID_ARGUMENT: Unrecognized servable version label: L",
    of("S"): 'FAILED_PRECONDITION: Serving signature key "S" not found.',
    DEFAULT: "INVALID_ARGUMENT: input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. "
    "Missing but required: {x}.",
    DEFAULT + X + 'inputs { key: "b" value {} } inputs { key: "a" value {} }':
    "INVALID_ARGUMENT: input size does not match signature: 3!=1 len({a,b,x}) != len({x}). Sent extra: {a,b}. "
    "Missing but required: {}.",
    DEFAULT + 'inputs { key: "zz" value {} }':
    "INVALID_ARGUMENT: Signature input alias: x(feed name: x:0) not found in request and no default "
    "value provided. Inputs expected to be in the request {zz}, or default input alias set: ",
    DEFAULT + 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } tensor_content: "abc" } }':
    "INVALID_ARGUMENT: tensor parsing error: x",
    # Refused before anything is allocated.
    DEFAULT + 'inputs { key: "x" value { dtype: DT_FLOAT tensor_shape { dim { size: 1099511627776 } } float_val: 1 } }':
    "INVALID_ARGUMENT: tensor parsing error: x",
    DEFAULT + X + 'output_filter: "zz"':
    "INVALID_ARGUMENT: output tensor alias not found in signature: zz Outputs expected to be in the set {y}.",
    DEFAULT + X + 'output_filter: ["y", "y"]': "INVALID_ARGUMENT: duplicate output tensor alias: y",
    DEFAULT + 'inputs { key: "x" value { dtype: DT_BOOL tensor_shape {} bool_val: true } }':
    "INVALID_ARGUMENT: Expects arg[0] to be float but bool is provided",
    DEFAULT + 'inputs { key: "x" value { dtype: DT_STRING tensor_shape {} string_val: "a" } }':
    "INVALID_ARGUMENT: Expects arg[0] to be float but string is provided",
    # Long messages break clients, since they travel in a header.
    of(5000 * "s"): 'FAILED_PRECONDITION: Serving signature key "' + 1001 * "s" + "...TRUNCATED",
}  # fmt: skip
CLASSES = "result { classifications { classes { score: 3 } } classifications { classes { score: 3.5 } } }"
CLASSIFY = {
    of("classify_x_to_y") + given(2, 3): VERSION + 'signature_name: "classify_x_to_y" }' + CLASSES,
    of("classify", "zoo") + given(2, 3): zoo("classify") + CLASSES,
    of("label", "zoo") + given(2): zoo("label")
    + 'result { classifications { classes { label: "no" score: 0.25 } classes { label: "yes" score: 0.75 } } }',
    of("classify_x_to_y"): "INVALID_ARGUMENT: Input is empty.",
    of("S") + given(1): "INVALID_ARGUMENT: No signature was found with the name: S",
    of("regress_x_to_y") + given(1): "INVALID_ARGUMENT: Expected classification signature outputs to contain at least "
    'one of "classes" or "scores". Signature was: ...',
    DEFAULT + given(1): "INVALID_ARGUMENT: No classification inputs found in SignatureDef: ...",
    of("pair", "zoo") + given(1): "INVALID_ARGUMENT: Expected one input Tensor.",
    given(1): "INVALID_ARGUMENT: Missing ModelSpec",
}  # fmt: skip
REGRESS = {
    of("regress_x_to_y") + given(2): VERSION + 'signature_name: "regress_x_to_y" } result { regressions { value: 3 } }',
    of("regress", "zoo") + given(2, 3): zoo("regress")
    + "result { regressions { value: 3 } regressions { value: 3.5 } }",
    # The context is merged into every example.
    of("regress_x_to_y") + 'input { example_list_with_context { context { features { feature { key: "x" value '
    '{ float_list { value: 4 } } } } } examples {} examples { features { feature { key: "x" value { float_list '
    "{ value: 2 } } } } } } }":
    VERSION + 'signature_name: "regress_x_to_y" } result { regressions { value: 4 } regressions { value: 3 } }',
    of("regress_x_to_y"): "INVALID_ARGUMENT: Input is empty.",
    of("classify_x_to_y") + given(1): "INVALID_ARGUMENT: No regression outputs found in SignatureDef: ...",
    DEFAULT + given(1): "INVALID_ARGUMENT: No regression inputs found in SignatureDef: ...",
    of("regress_x_to_y", "nobody") + given(1): "NOT_FOUND: Servable not found for request: Latest(nobody)",
}  # fmt: skip
SCORE, VALUE = (
    "classification_result { classifications { classes { score: 3 } } }",
    "regression_result { regressions { value: 3 } }",
)
MULTI = {
    task("regress_x_to_y") + task("classify_x_to_y", "classify") + task("regress_x2_to_y") + given(2):
    result("regress_x_to_y", VALUE) + result("classify_x_to_y", SCORE) + result("regress_x2_to_y", VALUE),
    # Each has an input of its own.
    task("regress", model="zoo") + task("classify", "classify", "zoo") + task("regress2", model="zoo") + given(2):
    "results { " + zoo("regress") + VALUE + "} results { " + zoo("classify") + SCORE + "} results { " + zoo("regress2")
    + VALUE + "}",
    2 * task("regress_x_to_y"): "INVALID_ARGUMENT: Duplicate evaluation of signature: regress_x_to_y",
    task("S"): "INVALID_ARGUMENT: Requested signature not found in model graph: S",
    task("regress_x_to_y", "predict"):
    "UNIMPLEMENTED: Unsupported signature method_name: tensorflow/serving/predict",
    task("regress_x_to_y"): "INVALID_ARGUMENT: Input is empty.",
    task("regress_x_to_y") + task("classify_x_to_y", "classify", "other"):
    "INVALID_ARGUMENT: All ModelSpecs in a MultiInferenceRequest must access the same model name.",
}  # fmt: skip
METADATA = {
    DEFAULT: "INVALID_ARGUMENT: GetModelMetadataRequest must specify at least one metadata_field",
    DEFAULT + 'metadata_field: "foo"': "INVALID_ARGUMENT: Metadata field foo is not supported",
    NOBODY + 'metadata_field: "signature_def"': "NOT_FOUND: Servable not found for request: Latest(nobody)",
    'metadata_field: "signature_def"': "INVALID_ARGUMENT: Missing ModelSpec",
}
STATUS = {
    'model_spec { name: "default" version_label: "ignored" }':
    "model_version_status { version: 123 state: AVAILABLE status {} }",
    "": "INVALID_ARGUMENT: Missing ModelSpec",
    'model_spec { name: "default" version { value: 9 } }': "NOT_FOUND: Could not find version 9 of model default",
    NOBODY: "NOT_FOUND: Could not find any versions of model nobody",
}  # fmt: skip
TABLES = {
    "Predict": PREDICT, "Classify": CLASSIFY, "Regress": REGRESS, "MultiInference": MULTI,
    "GetModelMetadata": METADATA, "GetModelStatus": STATUS,
}  # fmt: skip
REQUEST_TYPES = {method.name: method.request_type for method in METHODS}


def check(running, method: str, request: str, answer: str) -> None:
    """An answer that ends with "..." goes on with a signature, printed."""
    stub = getattr(running.models if method == "GetModelStatus" else running.predictions, method)
    message = text_format.Parse(request, REQUEST_TYPES[method]())
    if answer.partition(": ")[0].isupper():
        status = status_of(stub, message, timeout=60)
        assert (status[: len(answer) - 3] + "..." if answer.endswith(": ...") else status) == answer
    else:
        response = stub(message, 60)
        assert response == text_format.Parse(answer, type(response)())


@pytest.mark.parametrize(
    ("method", "request_"),
    [pytest.param(method, request, id=f"{method}-{row}")
     for method, table in TABLES.items() for row, request in enumerate(table)],
)  # fmt: skip
def test_a_request_has_this_answer(server, method, request_):
    check(server, method, request_, TABLES[method][request_])


@pytest.fixture(scope="module")
def others(zoo):
    """Of the zoo, one server that batches and one that checks the methods of signatures."""
    options = {"model_name": "zoo", "model_base_path": str(zoo)}
    running = start(**options, enable_batching=True), start(**options, enable_signature_method_name_check=True)
    yield running
    for one in running:
        one.stop()


@pytest.mark.parametrize("method", ["Classify", "Regress", "MultiInference"])
def test_signatures_of_saved_model_save_are_batched_and_their_methods_checked_on_request(others, method):
    ((request, answer), *_) = [row for row in TABLES[method].items() if '"zoo"' in row[0]]
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
    listed = named_tensors(1, {"y": tf.make_ndarray(value)}, other=tf.make_tensor_proto)
    for sent in (value, predict_pb2.PredictResponse.FromString(listed).outputs["y"]):
        output = server.predictions.Predict(predict_request("zoo", name, x=sent)).outputs["y"]
        assert output.dtype == value.dtype
        np.testing.assert_array_equal(tf.make_ndarray(output), tf.make_ndarray(value))


def test_metadata_holds_every_signature(server):
    request = text_format.Parse(DEFAULT + 'metadata_field: "signature_def"', REQUEST_TYPES["GetModelMetadata"]())
    response = server.predictions.GetModelMetadata(request)
    signatures = text_format.MessageToString(response.metadata["signature_def"])
    assert response.model_spec.version.value == 123
    for name in ("serving_default", "classify_x_to_y", "regress_x_to_y", "regress_x2_to_y"):
        assert f'key: "{name}"' in signatures
