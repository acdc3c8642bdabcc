"""The contract of REST requests: each body or path, and the answer, or the status and its sentence."""

import json
import string
import urllib.request

import numpy as np
import pytest
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from tests.refusals import table_of

DEEP = {
    "deep_lists": 100_000 * "[", "ends_of_lists": 100_000 * "]", "deep_objects": 100_000 * '{"a":',
    "rank_33": 33 * "[" + "1" + 33 * "]", "rank_300": 300 * "[" + "1" + 300 * "]", "googol": "1" + 400 * "0",
    "zeros": 5000 * "0", "nines": 5000 * "9"
}  # fmt: skip
REQUESTS = [string.Template(line.replace("⏎", "\n")).substitute(DEEP).split(" | ") for line in table_of(__file__)]
ZOO, DEFAULT = "POST /v1/models/zoo:predict", "POST /v1/models/default:predict"
# What is no UTF-8: a raw byte, and half a surrogate pair as if it were a character.
NO_UTF8 = [
    # TensorFlow quotes in its own message what is none.
    (ZOO, b'{"signature_name": "number", "inputs": ["\xff"]}', "400 StringToNumberOp could not correctly ..."),
    (ZOO, b'{"instances": [{"\xff": 1}]}', "400 ..."),
    (ZOO, b'{"instances": [{"\xed\xa0\x80": 1}]}', "400 ..."),
    (ZOO, b'{"signature_name": "\xff", "inputs": 1}', "400 ..."),
    (ZOO, b'{"signature_name": "\xed\xa0\x80", "inputs": 1}', "400 ..."),
    (
        DEFAULT.replace("predict", "regress"),
        b'{"signature_name": "regress_x_to_y", "examples": [{"\xff": 1}]}', r"400 Feature name '\udcff' is not UTF-8"
    )
]  # fmt: skip


@pytest.mark.parametrize("call, body, answer", [*REQUESTS, *NO_UTF8], ids=range(len(REQUESTS) + len(NO_UTF8)))
def test_a_request_has_this_answer(server, call, body, answer):
    body = {"-": None, '""': b""}.get(body, body.encode() if isinstance(body, str) else body)
    status, content, headers = server.http(*call.split(" ", 1), body)
    if answer[0] == "{":
        assert (status, json.dumps(content, sort_keys=True)) == (200, json.dumps(json.loads(answer), sort_keys=True))
    elif answer[3:]:
        text = f"{status} {content['error']}"
        assert (text[: len(answer) - 3] + "..." if answer.endswith("...") else text) == answer
    else:
        assert (str(status), content) == (answer, b"")
        assert status == 400 or "json" not in headers.get("Content-Type", "")


def test_metadata_is_what_the_file_says_with_every_field(server, half_plus_two):
    answer = server.http("GET", "/v1/models/default/metadata")[1]
    saved = saved_model_pb2.SavedModel.FromString((half_plus_two / "00000123" / "saved_model.pb").read_bytes())
    signatures = json_format.MessageToDict(
        saved.meta_graphs[0], preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )["signature_def"]
    assert answer["metadata"]["signature_def"]["signature_def"] == signatures
    assert (answer["model_spec"]["name"], answer["model_spec"]["version"]) == ("default", "123")


def raw(server, model, body):
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
