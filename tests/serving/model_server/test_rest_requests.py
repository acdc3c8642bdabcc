"""The contract of REST requests: each body or path, and the answer, or the status and its sentence; and JSON alone."""

import base64
import json
import math
import re
import string
import urllib.request

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow.core.protobuf import saved_model_pb2

from serving.model_server import json_response
from serving.model_server.json_request import parse_object
from serving.model_server.status import StatusError
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


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "b64", "z"]), inner, max_size=2),
    max_leaves=8,
)
documents = st.dictionaries(st.text(max_size=3), json_values, max_size=3)


@given(
    documents, st.booleans(), st.integers(0, 60), st.sampled_from(["", ",", "]", "}", '"', "[", "1", "\\", "NaN", "-"])
)
@example({"a": [1, {"b": 2}]}, True, 9, "]")
@example({"a": [1, {"b": 2}]}, True, 13, "")
@example({"a": [], "b": {}}, True, 6, " ")
@example({"a": ""}, False, 7, "\\")
def test_every_parser_reads_alike(document, ascii, position, typo):
    """Text behind an object changes nothing, but calls for the slow parser; Python's own is the judge of values."""
    text = json.dumps(document, ensure_ascii=ascii)
    text = text[:position] + typo + text[position + 1 :]
    value = read(text)
    assert value == read(text + "\nx")
    if value != "error" and not re.search("-NaN|Inf(?!inity)", text):
        assert value == repr(json.JSONDecoder().raw_decode(text)[0])


def read(text):
    try:
        return repr(parse_object(text.encode()))
    except StatusError:
        return "error"


@pytest.mark.parametrize(
    "body, value",
    [
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": Inf, "b": [{}, -Infinity, []]}{', {"a": math.inf, "b": [{}, -math.inf, []]}),
        (b'{"\xff": "\\u00e4\xed\xa0\x80"}', {"\udcff": "\u00e4\udced\udca0\udc80"}),
        (b'{"a": 1' + 4000 * b"0" + b"}", {"a": 10**4000}),
    ],
    ids=["mark", "infinity", "no UTF-8", "digits"],
)
def test_more_than_standard_json_is_read(body, value):
    assert parse_object(body) == value


NO_JSON = ["NaN,", "NaN:1", "NaN]", "NaN", "[NaN}", "[,NaN}", "[NaN,]}", "-1e999}", "1" + 5000 * "0" + "}"]


# The last: half of a surrogate pair beside a byte that is no UTF-8.
@pytest.mark.parametrize(
    "body",
    [
        *("\ufeff", "{", '{"a"}', '{"a" NaN}', "{1: NaN}", "{{}: NaN}", *('{"a":' + end for end in NO_JSON)),
        # Read in a time that grows as the text does.
        pytest.param('{"a": "' + 10**6 * '\\"' + "\\", id="quotes"),
        '{"a": "\udcff\\udcff"}',
    ],
)
def test_no_json_is_refused(body):
    with pytest.raises(StatusError, match="JSON Parse error: "):
        parse_object(body.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("dtype, width", [(np.float32, 32), (np.float64, 64)])
def test_texts_of_numbers_read_back_exactly(dtype, width):
    @given(st.lists(st.floats(width=width), min_size=1, max_size=20))
    @example([1.0000001192092896, 16777217.0 if width == 64 else 16777216.0, 1e-45, 3.4028234663852886e38])
    def check(numbers):
        values = np.array(numbers, dtype)
        texts = json_response.float_texts(values)
        np.testing.assert_array_equal(np.array([json.loads(text) for text in texts]).astype(dtype), values)
        assert all("." in text or "e" in text or text in ("NaN", "Infinity", "-Infinity") for text in texts)

    check()


def test_numbers_have_the_digits_of_the_real_server():
    numbers = np.array([3.0, 9e6, 3e-5, 0.2, 0.123456, 1 / 3, -0.0, 1e6], np.float32)
    texts = ["3.0", "9e+06", "3e-05", "0.2", "0.123456", "0.333333343", "-0.0", "1e+06"]
    assert json_response.float_texts(numbers) == texts


@given(st.binary(max_size=30))
@example(b"\xfb\xef\xff")
def test_any_base64_survives(server, content):
    for text in (base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode().rstrip("=")):
        body = {"signature_name": "pair", "inputs": {"a": [[1.0]], "b": [{"b64": text}]}}
        assert base64.b64encode(content) in raw(server, "zoo", body)
