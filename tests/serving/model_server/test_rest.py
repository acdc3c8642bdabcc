"""The REST API: URLs, bodies, number formats and error bodies."""

import base64
import gzip
import json
import math
import re
import socket
import time
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.model_server import json_response
from serving.model_server import json_values as json_parsing
from serving.model_server.rest import RestApi
from serving.model_server.status import StatusError
from serving.model_server.telemetry import AccessLog

PREDICT = "/v1/models/default:predict"
TYPED = "/v1/models/typed:predict"


@pytest.fixture(scope="module")
def typed(build, tmp_path_factory):
    """A model with a signature per dtype (x -> y), one of two inputs, one that answers bytes, and a scalar one."""

    def identity(dtype, shape=None):
        return tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[tf.TensorSpec(shape, dtype)])

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, "a"), tf.TensorSpec([None], tf.string, "b")])
    def pair(a, b):
        return {"total": tf.reduce_sum(a, 1), "text": b, "raw_bytes": b}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def mean(x):
        return {"y": tf.reduce_mean(x)}

    base = tmp_path_factory.mktemp("typed")
    names = ["float32", "float64", "float16", "int8", "int32", "int64", "uint32", "uint64", "bool", "string"]
    signatures = {name: identity(tf.as_dtype(name)) for name in names}
    build.function(base / "1", pair=pair, mean=mean, complex=identity(tf.complex64), **signatures)
    return base


@pytest.fixture(scope="module")
def typed_server(typed, build):
    running = build.start(model_base_path=str(typed), model_name="typed")
    yield running
    running.stop()


def call(running, body, status=200):
    actual, answer, headers = running.http("POST", TYPED, body)
    assert actual == status, answer
    assert headers["Content-Type"] == "application/json"
    return answer


def test_row_and_column(server):
    assert server.http("POST", PREDICT, {"instances": [2.0, 3, 4.0]})[1] == {"predictions": [3.0, 3.5, 4.0]}
    assert server.http("POST", PREDICT, {"inputs": [[2.0], [3.0]]})[1] == {"outputs": [[3.0], [3.5]]}
    assert server.http("POST", PREDICT, {"inputs": {"x": 2}})[1] == {"outputs": 3.0}
    assert server.http("POST", PREDICT, {"instances": [{"x": 2}, {"x": 3}]})[1] == {"predictions": [3.0, 3.5]}


def test_text_is_byte_for_byte_the_real_server_s(server):
    from_row = raw(server, {"instances": [[1.0], [0.2]]})
    assert from_row == b'{\n    "predictions": [[2.5], [2.1]\n    ]\n}'
    from_column = raw(server, {"inputs": [[1.0], [0.2]]})
    assert from_column == (
        b'{\n    "outputs": [\n        [\n            2.5\n        ],\n        [\n            2.1\n        ]\n    ]\n}'
    )


def raw(running, body, path=PREDICT):
    """The answer's text; http() would parse it."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{running.options.rest_api_port}{path}", json.dumps(body).encode()
    ) as r:
        return r.read()


def test_several_inputs_and_outputs(typed_server):
    row = {"signature_name": "pair", "instances": [{"a": [1, 2], "b": "x"}, {"a": [3, 4], "b": {"b64": "/w=="}}]}
    answer = raw(typed_server, row, TYPED)
    assert b'"total": 3.0' in answer
    assert b'"raw_bytes": { "b64": "eA==" }' in answer
    assert b'"text": "\xff"' in answer
    column = {"signature_name": "pair", "inputs": {"a": [[1, 2]], "b": ["x"]}}
    assert call(typed_server, column) == {"outputs": {"raw_bytes": [{"b64": "eA=="}], "text": ["x"], "total": [3.0]}}


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ("float32", [1.5, 2.0]),
        ("float64", [1e300, -2.5]),
        ("float16", [0.5]),
        ("int8", [-3]),
        ("int32", [[1, 2], [-3, 2**31 - 1]]),
        ("int64", [2**63 - 1, -(2**63)]),
        ("uint32", [2**32 - 1]),
        ("uint64", [2**64 - 1]),
        ("bool", [True, False]),
        ("string", ["a", "ü", ""]),
        ("float32", []),
        ("float32", [[]]),
    ],
)
def test_values_survive(typed_server, signature, value):
    assert call(typed_server, {"signature_name": signature, "inputs": value}) == {"outputs": value}


@pytest.mark.parametrize(
    ("signature", "value", "message"),
    [
        ("float32", ["a"], 'JSON Value: "a" Type: String is not of expected type: float'),
        ("float32", [True], "JSON Value: true Type: True is not of expected type: float"),
        ("float32", [None], "JSON Value: null Type: Null is not of expected type: float"),
        ("int32", [1.5], "JSON Value: 1.5 Type: Number is not of expected type: int32"),
        ("int32", [1.0], "JSON Value: 1.0 Type: Number is not of expected type: int32"),
        ("int32", [2**31], "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
        ("int64", [2**63], f"JSON Value: {2**63} Type: Number is not of expected type: int64"),
        ("uint32", [-1], "JSON Value: -1 Type: Number is not of expected type: uint32"),
        ("bool", [1], "JSON Value: 1 Type: Number is not of expected type: bool"),
        ("string", [1], "JSON Value: 1 Type: Number is not of expected type: string"),
        ("string", [{"b64": "?"}], "Unable to base64 decode"),
        ("float32", [[1], 2], "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
        ("float32", [[1], [2, 3]], "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
        ("float32", [1, [2]], "Encountered list at unexpected level: 1 expected < 1"),
        ("complex", [1.0], "Conversion of JSON Value: 1.0 to type: complex64"),
    ],
)
def test_values_refused(typed_server, signature, value, message):
    status = 501 if signature == "complex" else 400
    assert call(typed_server, {"signature_name": signature, "inputs": value}, status) == {"error": message}


def test_numbers_beyond_a_float(typed_server):
    body = '{"signature_name": "float32", "inputs": [1e39, -1e39, 1e-50, NaN, Infinity, -Infinity, 123456789]}'
    outputs = call(typed_server, body)["outputs"]
    assert outputs[:3] == [math.inf, -math.inf, 0.0]
    assert math.isnan(outputs[3])
    assert outputs[4:] == [math.inf, -math.inf, 123456792.0]
    words = call(typed_server, '{"signature_name": "float32", "inputs": [Inf, -Inf,-NaN, NaN]}')["outputs"]
    assert words[:2] == [math.inf, -math.inf] and all(map(math.isnan, words[2:]))
    huge = '{"signature_name": "float32", "inputs": [1' + "0" * 400 + "]}"
    assert call(typed_server, huge) == {"outputs": [math.inf]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "JSON Parse error: The document is empty"),
        ("  \n", "JSON Parse error: The document is empty"),
        ('{"inputs":', "JSON Parse error: Invalid value. at offset: 10"),
        ("{inputs:1}", "JSON Parse error: Missing a name for object member. at offset: 1"),
        ('{"inputs" 1}', "JSON Parse error: Missing a colon after a name of object member. at offset: 10"),
        ('{"inputs":1 2}', "JSON Parse error: Missing a comma or } after an object member. at offset: 12"),
        ('{"inputs":[Infinite]}', "JSON Parse error: Invalid value. at offset: 11"),
        ('{"inputs":[-Nan]}', "JSON Parse error: Invalid value. at offset: 11"),
        ('{"inputs":[1 2]}', "JSON Parse error: Missing a comma or ] after an array element. at offset: 13"),
        ('{"inputs":"a\nb"}', "JSON Parse error: Invalid encoding in string. at offset: 12"),
        ('{"inputs":"\\x"}', "JSON Parse error: Invalid escape character in string. at offset: 11"),
        ("[1]", "JSON Value: [\n    1\n] Is not object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances": []}', "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array"),
        (
            '{"instances": 1}',
            "JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array",
        ),
        ('{"instances": [1, {"x": 1}]}', "Expecting value/list but got object at item 1 of input list"),
        ('{"instances": [{"x": 1}, 1]}', "Expecting object but got list at item 1 of input list"),
        (
            '{"instances": [[1], [2, 3]]}',
            "Failed to process element: 1 of 'instances' list. "
            "Error: INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2",
        ),
        (
            '{"instances": [[[1, 2]], [[1], [2]]]}',
            "Failed to process element: 1 of 'instances' list. "
            "Error: INVALID_ARGUMENT: Expecting shape [1,2] but got: [2,1]",
        ),
        (
            '{"instances": [{"zz": 1}]}',
            "Failed to process element: 0 key: zz of 'instances' list. "
            "Error: INVALID_ARGUMENT: JSON object: does not have named input: zz",
        ),
        (
            '{"instances": [{}]}',
            "Failed to process element: 0 of 'instances' list. JSON object: {} keys must be equal to: x",
        ),
        ('{"inputs": {"zz": 1}}', "Missing named input: x in 'inputs' object."),
        (
            '{"signature_name": 1, "inputs": 1}',
            'JSON Value: {\n    "signature_name": 1,\n    "inputs": 1\n} not formatted correctly. '
            "'signature_name' key must be a string value.",
        ),
        (
            '{"signature_name": "S", "inputs": 1}',
            'Serving signature name: "S" not found in signature def',
        ),
    ],
)
def test_bad_bodies(server, body, message):
    status, answer, _ = server.http("POST", PREDICT, body)
    assert (status, answer) == (400, {"error": message})


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "a\\udfff\\ud800", "\\\\\\ud800x"])
def test_half_a_surrogate_pair_is_no_text(server, text):
    status, answer, _ = server.http("POST", PREDICT, f'{{"inputs": "{text}"}}')
    assert status == 400
    assert answer["error"].startswith("JSON Parse error: The surrogate pair in string is invalid. at offset: ")


def test_whole_surrogate_pairs_are_text(typed_server):
    body = '{"signature_name": "string", "inputs": ["\\ud83d\\ude00", "\\\\ud800"]}'
    assert call(typed_server, body) == {"outputs": ["\U0001f600", "\\ud800"]}
    # What follows makes it a case for the exact parser.
    assert call(typed_server, body + "trailing") == {"outputs": ["\U0001f600", "\\ud800"]}


documents = st.dictionaries(st.text(max_size=3), st.deferred(lambda: json_values), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    documents, st.booleans(), st.integers(0, 200), st.sampled_from(["", ",", "]", "}", '"', "[", "1", "\\", "NaN", "-"])
)
def test_every_parser_reads_alike(document, ascii, position, typo):
    """The quick parser, Python's own and the one without recursion, on JSON with a slip of the pen in it."""
    text = json.dumps(document, ensure_ascii=ascii)
    text = text[:position] + typo + text[position + 1 :]
    body = text.encode("utf-8", "surrogatepass")
    one = outcome(lambda: json_parsing.parse_object(body))
    other = outcome(lambda: json_parsing._exactly(body, math.inf))
    assert one == other or (one[0] == "error" and other[0] != "error" and "Is not object" in one[1])
    if not re.search("-NaN|Inf(?!inity)", text):
        assert outcome(lambda: json_parsing._iteratively_decoded(text, 0, math.inf)) == outcome(
            lambda: json_parsing._DECODER.raw_decode(text, 0)
        )


def outcome(parse):
    try:
        return repr(parse())
    except StatusError as error:
        return "error", error.message
    except json.JSONDecodeError as error:
        return "error", error.pos


def test_both_formats_at_once_are_refused(server):
    status, answer, _ = server.http("POST", PREDICT, {"instances": [1], "inputs": [1]})
    assert status == 400
    assert "expecting only one of 'inputs' or 'instances' keys to exist" in answer["error"]


def test_plain_list_for_several_inputs(typed_server):
    body = {"signature_name": "pair", "instances": [1]}
    assert call(typed_server, body, 400)["error"].startswith("instances is a plain list, but expecting list of objects")
    body = {"signature_name": "pair", "inputs": [1]}
    assert call(typed_server, body, 400)["error"].startswith("inputs is a plain value/list, but expecting an object")


def test_row_answer_needs_a_batch_dimension(typed_server):
    answer = call(typed_server, {"signature_name": "mean", "instances": [1.0, 2.0]}, 400)
    assert answer == {"error": "Tensor name: y has no shape information "}
    assert call(typed_server, {"signature_name": "mean", "inputs": [1.0, 2.0]}) == {"outputs": 1.5}


def test_what_follows_the_object_is_ignored(server):
    assert server.http("POST", PREDICT, '{"inputs": 2.0} trailing')[1] == {"outputs": 3.0}


def test_deep_nesting_parses(server):
    deep = "[" * 500_000 + "]" * 500_000
    assert server.http("POST", PREDICT, '{"ignored": ' + deep + ', "inputs": 2.0}')[1] == {"outputs": 3.0}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_an_error_not_a_crash(server, opening):
    status, answer, _ = server.http("POST", PREDICT, '{"instances": ' + opening * 500_000)
    assert status == 400
    assert answer["error"].startswith("JSON Parse error: Invalid value. at offset: ")
    assert server.predict(2.0) == [3.0]


def test_too_many_dimensions(server):
    status, answer, _ = server.http("POST", PREDICT, '{"inputs": ' + "[" * 300 + "1" + "]" * 300 + "}")
    assert (status, answer) == (400, {"error": "tensor parsing error: x"})


@pytest.mark.parametrize(
    ("verb", "path", "status", "message"),
    [
        ("GET", "/v1/foo", 400, "Malformed request: GET /v1/foo"),
        ("PUT", PREDICT, 400, f"Malformed request: PUT {PREDICT}"),
        ("DELETE", "/v1/models/default", 400, "Malformed request: DELETE /v1/models/default"),
        ("POST", "/v1/models/default", 400, "Malformed request: POST /v1/models/default"),
        ("GET", PREDICT, 400, f"Malformed request: GET {PREDICT}"),
        ("POST", "/v1/models/default:PREDICT", 400, "Malformed request: POST /v1/models/default:PREDICT"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/models/nobody", 404, "Could not find any versions of model nobody"),
        ("GET", "/v1/models/default/versions/9", 404, "Could not find version 9 of model default"),
    ],
)
def test_urls_refused(server, verb, path, status, message):
    body = '{"inputs": 1}' if verb in ("POST", "PUT") else None
    assert server.http(verb, path, body)[:2] == (status, {"error": message})


def test_urls_outside_the_api(server):
    status, body, headers = server.http("GET", "/foo")
    assert (status, body) == (404, b"")
    assert "json" not in headers.get("Content-Type", "")
    for digits in ("99999999999999999999", "9" * 5000):
        assert server.http("GET", f"/v1/models/default/versions/{digits}")[:2] == (400, b"")
    assert server.http("GET", f"/v1/models/default/versions/{'0' * 5000}123")[0] == 200


def test_url_spelling(server):
    assert server.http("GET", "/V1/Models/default")[0] == 200
    assert server.http("GET", "/v1/models/%64efault")[0] == 200
    assert server.http("POST", "/V1/models/default/versions/123:predict", {"inputs": 2.0})[1] == {"outputs": 3.0}
    unknown = server.http("POST", "/v1/models/default/versions/9:predict", {"inputs": 2.0})
    assert unknown[:2] == (404, {"error": "Servable not found for request: Specific(default, 9)"})
    label = server.http("POST", "/v1/models/default/labels/L:predict", {"inputs": 2.0})
    assert label[:2] == (400, {"error": "Unrecognized servable version label: L"})


def test_status_and_metadata(server):
    entry = {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert server.http("GET", "/v1/models/default")[1] == {"model_version_status": [entry]}
    answer = server.http("GET", "/v1/models/default/metadata")[1]
    assert answer["model_spec"]["name"] == "default"
    assert answer["model_spec"]["version"] == "123"
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signature["inputs"]["x"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}],
        "unknown_rank": False,
    }


def test_classify_and_regress(server):
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}, {"x": [3.0]}]}
    answer = server.http("POST", "/v1/models/default:classify", body)[1]
    assert answer == {"results": [[["", 3.0]], [["", 3.5]]]}
    body = {"signature_name": "regress_x_to_y", "examples": [{}], "context": {"x": 2.0}}
    assert server.http("POST", "/v1/models/default:regress", body)[1] == {"results": [3.0]}


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([1], "Example must be JSON object but got JSON Number"),
        ([{"x": [[1.0]]}], "Feature: x has element with unexpected JSON type: Array"),
        ([{"x": None}], "Feature: x has element with unexpected JSON type: Null"),
        ([{"x": [1.0, 2]}], "Unexpected element type in feature: x expecting type: float"),
        ([{"x": 2**63}], "Feature: x has uint64 element. Only int64 is supported."),
    ],
)
def test_examples_refused(server, examples, message):
    body = {"signature_name": "regress_x_to_y", "examples": examples}
    assert server.http("POST", "/v1/models/default:regress", body)[:2] == (400, {"error": message})


def test_feature_names_that_are_no_utf8(server):
    body = b'{"signature_name": "regress_x_to_y", "examples": [{"\xff": 1}]}'
    status, answer, _ = server.http("POST", "/v1/models/default:regress", body)
    assert (status, answer) == (400, {"error": r"Feature name '\udcff' is not UTF-8"})


def test_gzip_request(server):
    body = gzip.compress(b'{"inputs": 2.0}')
    assert server.http("POST", PREDICT, body, {"Content-Encoding": "gzip"})[1] == {"outputs": 3.0}
    status, answer, _ = server.http("POST", PREDICT, b"no gzip", {"Content-Encoding": "gzip"})
    assert status == 400
    assert "gzip" in answer["error"]


def test_cross_origin(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two), rest_api_enable_cors_support=True)
    status, _, headers = running.http("OPTIONS", PREDICT, headers={"Origin": "http://example.com"})
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert running.http("POST", PREDICT, {"inputs": 2.0})[2]["Access-Control-Allow-Origin"] == "*"


def test_a_query_is_part_of_no_known_path(server):
    """As the real server: 404, without JSON."""
    assert server.http("POST", PREDICT + "?x=1", {"inputs": 2.0})[:2] == (404, b"")
    assert server.http("GET", "/v1/models/default?x=1")[:2] == (404, b"")


def test_bodies_above_the_limit(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two), rest_api_max_body_bytes=1000)
    body = b'{"inputs": 2.0}'
    assert running.http("POST", PREDICT, body + b" " * 985)[1] == {"outputs": 3.0}
    packed = {"Content-Encoding": "gzip"}
    for large, headers in (
        (body + b" " * 986, {}),
        (gzip.compress(body + b" " * 10**6), packed),
        (iter([body] * 99), {}),
    ):
        status, answer, _ = running.http("POST", PREDICT, large, headers)
        assert (status, "--rest_api_max_body_bytes" in answer["error"]) == (413, True)
    with socket.create_connection(("127.0.0.1", running.options.rest_api_port)) as connection:
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n".encode()
        connection.sendall(head + b" " * 1001 + b"\r\n0\r\n\r\n")
        assert b" 413 " in connection.recv(1000)
    assert running.http("POST", PREDICT, body)[1] == {"outputs": 3.0}


def test_a_large_compressed_body_is_inflated_in_its_turn(server):
    """A few bytes may become a hundred million: one such body at a time, and small ones do not wait for it."""
    api, packed = RestApi(server.server.core, AccessLog("")), {"content-encoding": "gzip"}
    large = gzip.compress(b'{"inputs": 2.0' + b" " * 2**21 + b"}")
    cut = large[:1500]
    with api._turn(2**20, float("inf")):
        late = time.monotonic() - 29.9
        assert api.answer("POST", PREDICT, packed, large, late).status == 504
        assert api.answer("POST", PREDICT, packed, cut, late).status == 504, "cut off, which nobody has seen yet"
        assert api.answer("POST", PREDICT, packed, gzip.compress(b'{"inputs": 2.0}')).status == 200
    assert api.answer("POST", PREDICT, packed, large).status == 200
    answer = api.answer("POST", PREDICT, packed, cut)
    assert (answer.status, b"Cannot decompress the gzip body" in answer.body) == (400, True)


def test_parsing_counts_in_the_time_limit(server):
    """A request that waited and was parsed until its time was up is not run any more."""
    api = RestApi(server.server.core, AccessLog(""))
    late = time.monotonic() - 31
    for body in (b'{"inputs": 2.0}', b'{"inputs": ' + b" " * 2**21 + b"2.0}", b'{"inputs": NaN}' + b" " * 2**22):
        assert api.answer("POST", PREDICT, {}, body, late).status == 504
        assert api.answer("POST", PREDICT, {}, body).status == 200


def test_no_time_limit(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two), rest_api_timeout_in_ms=0)
    for body in (b'{"inputs": 2.0}', b'{"inputs": ' + b" " * 2**21 + b"2.0}"):
        assert running.http("POST", PREDICT, body)[1] == {"outputs": 3.0}


def test_large_bodies_are_converted_right(typed_server):
    """Above what is converted in one slice, in both formats, with the odd value anywhere."""
    values = np.random.default_rng(0).normal(size=(40_000, 3)).astype(np.float32)
    rows = values.tolist()
    for key, answer in (("instances", "predictions"), ("inputs", "outputs")):
        result = call(typed_server, {"signature_name": "float32", key: rows})[answer]
        np.testing.assert_array_equal(np.array(result, np.float32), values)
    named = [{"a": row, "b": "x"} for row in rows]
    result = call(typed_server, {"signature_name": "pair", "instances": named})["predictions"]
    np.testing.assert_allclose([row["total"] for row in result], values.sum(1), rtol=1e-4, atol=1e-6)
    rows[-1][2] = "x"
    answer = call(typed_server, {"signature_name": "float32", "instances": rows}, 400)
    assert answer["error"].startswith("Failed to process element: 39999 of 'instances' list. Error: INVALID_ARGUMENT: ")


def test_run_time_limit(start_server, build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def slow(x):
        return {"y": tf.while_loop(lambda i, v: i < 10**9, lambda i, v: (i + 1, v + 1.0), (0, x))[1]}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    running = start_server(model_base_path=str(tmp_path / "m"), rest_api_timeout_in_ms=200)
    assert running.http("POST", PREDICT, {"inputs": 1.0})[0] == 504


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_float_texts_read_back_exactly(numbers):
    values = np.array(numbers, np.float32)
    texts = json_response.float_texts(values)
    np.testing.assert_array_equal(np.array([json.loads(text) for text in texts]).astype(np.float32), values)
    for text in texts:
        assert "." in text or "e" in text or text in ("NaN", "Infinity", "-Infinity")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_double_texts_read_back_exactly(numbers):
    values = np.array(numbers, np.float64)
    np.testing.assert_array_equal([json.loads(text) for text in json_response.float_texts(values)], values)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3.0"),
        (9e6, "9e+06"),
        (3e-5, "3e-05"),
        (0.2, "0.2"),
        (0.123456, "0.123456"),
        (1 / 3, "0.333333343"),
        (-0.0, "-0.0"),
        (1e6, "1e+06"),
    ],
)
def test_float_texts(value, text):
    assert json_response.float_texts(np.array([value], np.float32)) == [text]


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "b64", "z"]), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["instances", "inputs"]), json_values)
def test_any_json_gets_an_answer(server, key, value):
    status, answer, _ = server.http("POST", PREDICT, {key: value})
    assert status in (200, 400), answer
    assert ("error" in answer) == (status == 400)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_get_an_answer(server, body):
    assert server.http("POST", PREDICT, body)[0] == 400


@given(st.binary(max_size=30))
@settings(max_examples=30, deadline=None)
def test_any_base64_survives(typed_server, content):
    for text in (base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode().rstrip("=")):
        body = {"signature_name": "pair", "inputs": {"a": [[1.0]], "b": [{"b64": text}]}}
        body_text = raw(typed_server, body, TYPED)
        assert base64.b64encode(content) in body_text
