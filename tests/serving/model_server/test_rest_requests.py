"""The contract of REST requests: each body or path, and the answer, or the status and its sentence."""

import gzip
import json
import urllib.request

import numpy as np
import pytest

TOO_DEEP = "400 JSON Parse error: Invalid value. at offset: ..."
HALF = "400 JSON Parse error: The surrogate pair in string is invalid. at offset: ..."
PREDICT = {
    '{"instances": [2.0, 3, 4.0]}': '{"predictions": [3.0, 3.5, 4.0]}',
    '{"inputs": [[2.0], [3.0]]}': '{"outputs": [[3.0], [3.5]]}',
    '{"inputs": {"x": 2}}': '{"outputs": 3.0}',
    '{"instances": [{"x": 2}, {"x": 3}]}': '{"predictions": [3.0, 3.5]}',
    # What follows the object is ignored.
    '{"inputs": 2.0} trailing': '{"outputs": 3.0}',
    '{"ignored": ' + 100_000 * "[" + 100_000 * "]" + ', "inputs": 2.0}': '{"outputs": 3.0}',
    "": "400 JSON Parse error: The document is empty",
    "  \n": "400 JSON Parse error: The document is empty",
    '{"inputs":': "400 JSON Parse error: Invalid value. at offset: 10",
    "{inputs:1}": "400 JSON Parse error: Missing a name for object member. at offset: 1",
    '{"inputs" 1}': "400 JSON Parse error: Missing a colon after a name of object member. at offset: 10",
    '{"inputs":1 2}': "400 JSON Parse error: Missing a comma or } after an object member. at offset: 12",
    '{"inputs":[Infinite]}': "400 JSON Parse error: Invalid value. at offset: 11",
    '{"inputs":[-Nan]}': "400 JSON Parse error: Invalid value. at offset: 11",
    '{"inputs":[1 2]}': "400 JSON Parse error: Missing a comma or ] after an array element. at offset: 13",
    '{"inputs":"a\nb"}': "400 JSON Parse error: Invalid encoding in string. at offset: 12",
    '{"inputs":"\\x"}': "400 JSON Parse error: Invalid escape character in string. at offset: 11",
    # Half of a surrogate pair is no text.
    '{"inputs": "\\ud800"}': HALF,
    '{"inputs": "\\udc00"}': HALF,
    '{"inputs": "a\\udfff\\ud800"}': HALF,
    '{"inputs": "\\\\\\ud800x"}': HALF,
    # Too deep for Python's own parser, which would end the process a little deeper.
    '{"instances": ' + 100_000 * "[": TOO_DEEP,
    '{"instances": ' + 100_000 * '{"a":': TOO_DEEP,
    '{"inputs": ' + 300 * "[" + "1" + 300 * "]" + "}": "400 tensor parsing error: x",
    "[1]": "400 JSON Value: [\n    1\n] Is not object",
    "{}": "400 Missing 'inputs' or 'instances' key",
    # TF Serving takes the first, and Python's readers the last.
    '{"inputs": 2.0, "inputs": 3.0}': "400 JSON Parse error: an object has the name 'inputs' twice; give it once",
    '{"instances": [{"x": 2, "x": 3}]}': "400 JSON Parse error: an object has the name 'x' twice; give it once",
    '{"inputs": 2.0, "inputs": 3.0} trailing': "400 JSON Parse error: an object has the name 'inputs' twice; ...",
    '{"instances": [1], "inputs": [1]}': '400 JSON Value: {\n    "instances": [\n        1\n    ],\n    "inputs": [\n'
    "        1\n    ]\n} Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
    '{"instances": []}': "400 JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
    '{"instances": 1}': "400 JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array",
    '{"instances": [1, {"x": 1}]}': "400 Expecting value/list but got object at item 1 of input list",
    '{"instances": [{"x": 1}, 1]}': "400 Expecting object but got list at item 1 of input list",
    '{"instances": [[1], [2, 3]]}': "400 Failed to process element: 1 of 'instances' list. "
    "Error: INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2",
    '{"instances": [[[1, 2]], [[1], [2]]]}': "400 Failed to process element: 1 of 'instances' list. "
    "Error: INVALID_ARGUMENT: Expecting shape [1,2] but got: [2,1]",
    '{"instances": [{"zz": 1}]}': "400 Failed to process element: 0 key: zz of 'instances' list. "
    "Error: INVALID_ARGUMENT: JSON object: does not have named input: zz",
    '{"instances": [{}]}': "400 Failed to process element: 0 of 'instances' list. JSON object: {} keys must "
    "be equal to: x",
    '{"inputs": {"zz": 1}}': "400 Missing named input: x in 'inputs' object.",
    '{"signature_name": 1, "inputs": 1}': '400 JSON Value: {\n    "signature_name": 1,\n    "inputs": 1\n} not '
    "formatted correctly. 'signature_name' key must be a string value.",
    '{"signature_name": "S", "inputs": 1}': '400 Serving signature name: "S" not found in signature def',
}  # fmt: skip
# By signature of the zoo, of which most answer what they get.
VALUES = {
    "float32": {
        "[1.5, 2.0]": "[1.5, 2.0]", "[]": "[]", "[[]]": "[[]]",
        "[1e39, -1e39, 1e-50, NaN, Infinity, -Infinity, 123456789]":
        "[Infinity, -Infinity, 0.0, NaN, Infinity, -Infinity, 1.23456792e+08]",
        "[Inf, -Inf,-NaN, NaN]": "[Infinity, -Infinity, NaN, NaN]",
        "[1" + 400 * "0" + "]": "400 JSON Value: 1...",
        "[1e400]": "400 JSON Parse error: Number too big to be stored in double.",
        "[-1e400, NaN]": "400 JSON Parse error: Number too big to be stored in double.",
        '["a"]': '400 JSON Value: "a" Type: String is not of expected type: float',
        "[true]": "400 JSON Value: true Type: True is not of expected type: float",
        "[null]": "400 JSON Value: null Type: Null is not of expected type: float",
        "[[1], 2]": "400 JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        "[[1], [2, 3]]": "400 Encountered list at unexpected size: 2 at level: 1 expected size: 1",
        "[1, [2]]": "400 Encountered list at unexpected level: 1 expected < 1",
    },
    "float64": {"[1e+300, -2.5]": "[1e+300, -2.5]"},
    "float16": {"[0.5]": "[0.5]"},
    "bfloat16": {"[0.5, 1.00001]": "[0.5, 1.0]"},
    "int8": {"[-3]": "[-3]"},
    "int32": {
        "[[1, 2], [-3, 2147483647]]": "[[1, 2], [-3, 2147483647]]",
        "[1.5]": "400 JSON Value: 1.5 Type: Number is not of expected type: int32",
        "[1.0]": "400 JSON Value: 1.0 Type: Number is not of expected type: int32",
        "[2147483648]": "400 JSON Value: 2147483648 Type: Number is not of expected type: int32",
    },
    "int64": {
        "[9223372036854775807, -9223372036854775808]": "[9223372036854775807, -9223372036854775808]",
        "[9223372036854775808]": "400 JSON Value: 9223372036854775808 Type: Number is not of expected type: int64",
    },
    "uint32": {
        "[4294967295]": "[4294967295]",
        "[-1]": "400 JSON Value: -1 Type: Number is not of expected type: uint32",
    },
    "uint64": {"[18446744073709551615]": "[18446744073709551615]"},
    "bool": {
        "[true, false]": "[true, false]",
        "[1]": "400 JSON Value: 1 Type: Number is not of expected type: bool",
    },
    "string": {
        '["a", "ü", ""]': '["a", "ü", ""]',
        r'"a\u0000"': r'"a\u0000"',
        r'["\ud83d\ude00", "\\ud800"]': r'["\ud83d\ude00", "\\ud800"]',
        "[1]": "400 JSON Value: 1 Type: Number is not of expected type: string",
        '[{"b64": "?"}]': "400 Unable to base64 decode",
    },
    "complex64": {"[1.0]": "501 Conversion of JSON Value: 1.0 to type: complex64"},
    "pair": {
        '{"a": [[1, 2]], "b": ["x"]}': '{"raw_bytes": [{"b64": "eA=="}], "text": ["x"], "total": [3.0]}',
        "[1]": "400 inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
        "tensorinfo_map",
    },
    "mean": {"[1.0, 2.0]": "1.5"},
    # TensorFlow quotes in its own message what is no UTF-8.
    "number": {'["\udcff"]': "400 StringToNumberOp could not correctly convert string: ..."},
}  # fmt: skip
ROWS = {
    '{"signature_name": "pair", "instances": [{"a": [1, 2], "b": "x"}, {"a": [3, 4], "b": {"b64": "eA=="}}]}':
    '{"predictions": [{"raw_bytes": {"b64": "eA=="}, "text": "x", "total": 3.0}, '
    '{"raw_bytes": {"b64": "eA=="}, "text": "x", "total": 7.0}]}',
    '{"signature_name": "pair", "instances": [1]}': "400 instances is a plain list, but expecting list of objects as "
    "multiple input tensors required as per tensorinfo_map",
    '{"signature_name": "mean", "instances": [1.0, 2.0]}': "400 Tensor name: y has no shape information ",
    # What makes it a case for the exact parser.
    r'{"signature_name": "string", "inputs": ["\ud83d\ude00", "\\ud800"]}trailing':
    r'{"outputs": ["\ud83d\ude00", "\\ud800"]}',
    # Names that are no UTF-8: a raw byte, and half a surrogate pair as if it were a character.
    b'{"instances": [{"\xff": 1}]}': "400 ...",
    b'{"instances": [{"\xed\xa0\x80": 1}]}': "400 ...",
    b'{"signature_name": "\xff", "inputs": 1}': "400 ...",
    b'{"signature_name": "\xed\xa0\x80", "inputs": 1}': "400 ...",
} | {
    f'{{"signature_name": "{signature}", "inputs": {value}}}':
    answer if answer[3:4] == " " else f'{{"outputs": {answer}}}'
    for signature, table in VALUES.items() for value, answer in table.items()
}  # fmt: skip
REGRESS = {
    '{"signature_name": "regress_x_to_y", "examples": [{}], "context": {"x": 2.0}}': '{"results": [3.0]}',
    '{"signature_name": "regress_x_to_y", "examples": [1]}': "400 Example must be JSON object but got JSON Number",
    '{"signature_name": "regress_x_to_y", "examples": [{"x": [[1.0]]}]}':
    "400 Feature: x has element with unexpected JSON type: Array",
    '{"signature_name": "regress_x_to_y", "examples": [{"x": null}]}':
    "400 Feature: x has element with unexpected JSON type: Null",
    '{"signature_name": "regress_x_to_y", "examples": [{"x": [1.0, 2]}]}':
    "400 Unexpected element type in feature: x expecting type: float",
    '{"signature_name": "regress_x_to_y", "examples": [{"x": [1.0, true]}]}':
    "400 Unexpected element type in feature: x expecting type: float",
    '{"signature_name": "regress_x_to_y", "examples": [{"x": 9223372036854775808}]}':
    "400 Feature: x has uint64 element. Only int64 is supported.",
    b'{"signature_name": "regress_x_to_y", "examples": [{"\xff": 1}]}': r"400 Feature name '\udcff' is not UTF-8",
}  # fmt: skip
TWO = '{"inputs": 2.0}'
POSTS = {
    "default:predict": PREDICT,
    "zoo:predict": ROWS,
    "default:classify": {
        '{"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}, {"x": [3.0]}]}':
        '{"results": [[["", 3.0]], [["", 3.5]]]}',
    },
    "zoo:classify": {
        '{"signature_name": "label", "examples": [{"x": 1.0}]}': '{"results": [[["no", 0.25], ["yes", 0.75]]]}',
    },
    "default:regress": REGRESS,
    "default/versions/123:predict": {TWO: '{"outputs": 3.0}'},
    "default/versions/9:predict": {TWO: "404 Servable not found for request: Specific(default, 9)"},
    "default/labels/L:predict": {TWO: "400 Unrecognized servable version label: L"},
    "default": {TWO: "400 Malformed request: POST /v1/models/default"},
    "default:PREDICT": {TWO: "400 Malformed request: POST /v1/models/default:PREDICT"},
    # A query is part of no known path.
    "default:predict?x=1": {TWO: "404"},
}  # fmt: skip
AVAILABLE = (
    '{"model_version_status": [{"version": "123", "state": "AVAILABLE", '
    '"status": {"error_code": "OK", "error_message": ""}}]}'
)
PATHS = {
    "GET /v1/models/default": AVAILABLE,
    "GET /V1/Models/default": AVAILABLE,
    "GET /v1/models/%64efault": AVAILABLE,
    f"GET /v1/models/default/versions/{5000 * '0'}123": AVAILABLE,
    "GET /v1/foo": "400 Malformed request: GET /v1/foo",
    "PUT /v1/models/default:predict": "400 Malformed request: PUT /v1/models/default:predict",
    "DELETE /v1/models/default": "400 Malformed request: DELETE /v1/models/default",
    "GET /v1/models/default:predict": "400 Malformed request: GET /v1/models/default:predict",
    "GET /v1/models": "400 Missing model name in request.",
    "GET /v1/models/nobody": "404 Could not find any versions of model nobody",
    "GET /v1/models/default/versions/9": "404 Could not find version 9 of model default",
    # Outside of the API there is no JSON, as at the real server.
    "GET /foo": "404",
    "GET /v1/models/default?x=1": "404",
    "GET /v1/models/default/versions/99999999999999999999": "400",
    f"GET /v1/models/default/versions/{5000 * '9'}": "400",
    "GET /monitoring/prometheus/metrics": "404",
}


def check(server, verb: str, path: str, body, answer: str) -> None:
    """answer: JSON, or a status and its sentence, which goes on where it ends with "..."."""
    body = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body
    status, content, headers = server.http(verb, path, body)
    if answer[0] == "{":
        assert (status, json.dumps(content, sort_keys=True)) == (200, json.dumps(json.loads(answer), sort_keys=True))
    elif answer[3:]:
        text = f"{status} {content['error']}"
        assert (text[: len(answer) - 3] + "..." if answer.endswith("...") else text) == answer
    else:
        assert (str(status), content) == (answer, b"")
        assert status == 400 or "json" not in headers.get("Content-Type", "")


@pytest.mark.parametrize(
    ("path", "body"),
    [pytest.param(path, body, id=f"{path}-{row}") for path, table in POSTS.items() for row, body in enumerate(table)],
)
def test_a_body_has_this_answer(server, path, body):
    check(server, "POST", f"/v1/models/{path}", body, POSTS[path][body])


@pytest.mark.parametrize("request_", PATHS, ids=range(len(PATHS)))
def test_a_path_has_this_answer(server, request_):
    check(server, *request_.split(" "), None, PATHS[request_])


def test_metadata_holds_name_version_and_signatures(server):
    answer = server.http("GET", "/v1/models/default/metadata")[1]
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert (answer["model_spec"]["name"], answer["model_spec"]["version"]) == ("default", "123")
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signature["inputs"]["x"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}],
        "unknown_rank": False,
    }


def raw(server, model: str, body: dict) -> bytes:
    """The answer's text; http() would parse it."""
    url = f"http://127.0.0.1:{server.options.rest_api_port}/v1/models/{model}:predict"
    with urllib.request.urlopen(url, json.dumps(body).encode()) as answer:
        return answer.read()


def test_text_is_byte_for_byte_the_real_server_s(server):
    rows = raw(server, "default", {"instances": [[1.0], [0.2]]})
    assert rows == b'{\n    "predictions": [[2.5], [2.1]\n    ]\n}'
    assert raw(server, "default", {"inputs": [[1.0], [0.2]]}) == (
        b'{\n    "outputs": [\n        [\n            2.5\n        ],\n        [\n            2.1\n        ]\n    ]\n}'
    )
    # Text goes out as it is, without an escape.
    body = {"signature_name": "pair", "instances": [{"a": [1, 2], "b": {"b64": "/w=="}}]}
    assert raw(server, "zoo", body) == (
        b'{\n    "predictions": [\n        {\n            "raw_bytes": { "b64": "/w==" },\n'
        b'            "text": "\xff",\n            "total": 3.0\n        }\n    ]\n}'
    )


def test_a_compressed_body_is_read_and_a_broken_one_refused(server):
    path, packed = "/v1/models/default:predict", {"Content-Encoding": "gzip"}
    assert server.http("POST", path, gzip.compress(TWO.encode()), packed)[1] == {"outputs": 3.0}
    status, answer, _ = server.http("POST", path, b"no gzip", packed)
    assert (status, answer["error"][:32]) == (400, "Cannot decompress the gzip body:")


def test_large_bodies_are_converted_right(server):
    """Above what is converted in one slice, in both formats, with the odd value anywhere."""
    values = np.random.default_rng(0).normal(size=(2**15 // 3 + 100, 3)).astype(np.float32)
    rows, path = values.tolist(), "/v1/models/zoo:predict"
    for key, answer in (("instances", "predictions"), ("inputs", "outputs")):
        result = server.http("POST", path, {"signature_name": "float32", key: rows})[1][answer]
        np.testing.assert_array_equal(np.array(result, np.float32), values)
    named = [{"a": row, "b": "x"} for row in rows]
    result = server.http("POST", path, {"signature_name": "pair", "instances": named})[1]["predictions"]
    np.testing.assert_allclose([row["total"] for row in result], values.sum(1), rtol=1e-4, atol=1e-6)
    rows[-1][2] = "x"
    answer = server.http("POST", path, {"signature_name": "float32", "instances": rows})
    assert answer[1]["error"].startswith(f"Failed to process element: {len(rows) - 1} of 'instances' list. Error: ")
