"""JSON read and written: every parser reads alike, numbers and bytes come back as they were."""

import base64
import json
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.model_server import json_response
from serving.model_server.json_request import parse_object
from serving.model_server.status import StatusError
from tests.serving.model_server.test_rest_requests import raw

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
