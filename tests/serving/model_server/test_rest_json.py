"""Values in JSON: every dtype in and out, numbers and text as the real server writes them, and what is no value."""

import base64
import json
import math
import re
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.model_server import json_response
from serving.model_server import json_values as json_parsing
from serving.model_server.status import StatusError

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


def test_plain_list_for_several_inputs(typed_server):
    body = {"signature_name": "pair", "instances": [1]}
    assert call(typed_server, body, 400)["error"].startswith("instances is a plain list, but expecting list of objects")
    body = {"signature_name": "pair", "inputs": [1]}
    assert call(typed_server, body, 400)["error"].startswith("inputs is a plain value/list, but expecting an object")


def test_row_answer_needs_a_batch_dimension(typed_server):
    answer = call(typed_server, {"signature_name": "mean", "instances": [1.0, 2.0]}, 400)
    assert answer == {"error": "Tensor name: y has no shape information "}
    assert call(typed_server, {"signature_name": "mean", "inputs": [1.0, 2.0]}) == {"outputs": 1.5}


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


@given(st.binary(max_size=30))
@settings(max_examples=30, deadline=None)
def test_any_base64_survives(typed_server, content):
    for text in (base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode().rstrip("=")):
        body = {"signature_name": "pair", "inputs": {"a": [[1.0]], "b": [{"b64": text}]}}
        body_text = raw(typed_server, body, TYPED)
        assert base64.b64encode(content) in body_text
