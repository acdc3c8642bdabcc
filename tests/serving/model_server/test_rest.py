"""The REST API: URLs, bodies, limits and error bodies."""

import gzip
import socket
import time

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.model_server.rest import RestApi
from serving.model_server.telemetry import AccessLog

PREDICT = "/v1/models/default:predict"


def test_row_and_column(server):
    assert server.http("POST", PREDICT, {"instances": [2.0, 3, 4.0]})[1] == {"predictions": [3.0, 3.5, 4.0]}
    assert server.http("POST", PREDICT, {"inputs": [[2.0], [3.0]]})[1] == {"outputs": [[3.0], [3.5]]}
    assert server.http("POST", PREDICT, {"inputs": {"x": 2}})[1] == {"outputs": 3.0}
    assert server.http("POST", PREDICT, {"instances": [{"x": 2}, {"x": 3}]})[1] == {"predictions": [3.0, 3.5]}


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


def test_both_formats_at_once_are_refused(server):
    status, answer, _ = server.http("POST", PREDICT, {"instances": [1], "inputs": [1]})
    assert status == 400
    assert "expecting only one of 'inputs' or 'instances' keys to exist" in answer["error"]


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


def test_run_time_limit(start_server, build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def slow(x):
        return {"y": tf.while_loop(lambda i, v: i < 10**9, lambda i, v: (i + 1, v + 1.0), (0, x))[1]}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    running = start_server(model_base_path=str(tmp_path / "m"), rest_api_timeout_in_ms=200)
    assert running.http("POST", PREDICT, {"inputs": 1.0})[0] == 504


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_get_an_answer(server, body):
    assert server.http("POST", PREDICT, body)[0] == 400
