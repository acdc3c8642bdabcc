"""What holds on every route: HEAD, slashes, prefixes, compressed bodies, CORS, fields and numbers that are none."""

import codecs
import gzip
import json
import re
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.gateway.pages import PAGES
from serving.gateway.routes.table import ROUTES
from serving.http_protocol import Refusal, inflated
from tests.serving.gateway.conftest import failure_of, kind_of

OPEN = [page.path for page in PAGES if "{" not in page.path]
EACH_ROUTE = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)


def post(gateway, route, path=None, **more):
    return gateway.http.post(path or route.path, json=route.example | more)


@pytest.mark.parametrize("path", OPEN)
def test_head_is_get_without_its_body(shared_gateway, path):
    http = shared_gateway("embedder").http
    got, asked = http.get(path), http.head(path)
    assert asked.status_code == got.status_code == 200 and asked.content == b""
    if path != "/metrics":
        assert asked.headers["content-length"] == got.headers["content-length"] == str(len(got.content))
    assert http.get(path + "/").status_code == 200


@EACH_ROUTE
def test_routes_take_a_slash_at_their_end_and_a_proxys_prefix(shared_gateway, route):
    gateway = shared_gateway(kind_of(route), root_path="/some/models")
    for path in (route.path, route.path + "/", "/some/models" + route.path, f"/some/models{route.path}/"):
        assert post(gateway, route, path).status_code == 200
    assert gateway.http.get("/some/models/openapi.json").json()["servers"] == [{"url": "/some/models"}]
    assert gateway.http.get("/some").status_code == gateway.http.get("/models/embed").status_code == 404


def packed(body):
    """Without the time, by which workers would call their tests otherwise."""
    return gzip.compress(body, mtime=0)


BODY = json.dumps({"inputs": "a"}).encode()
RAW = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": packed(BODY), "x-gzip": packed(BODY),
    "GZIP": packed(BODY[:4]) + packed(BODY[4:]),
    "deflate": zlib.compress(BODY), "DEFLATE": RAW.compress(BODY) + RAW.flush(), "identity": BODY,
    "": codecs.BOM_UTF8 + BODY
}  # fmt: skip


@pytest.mark.parametrize("coding", PACKED)
def test_compressed_bodies_and_a_byte_order_mark_are_read(shared_gateway, coding):
    http = shared_gateway("embedder").http
    answer = http.post("/embed", content=PACKED[coding], headers={"Content-Encoding": coding})
    assert answer.json() == http.post("/embed", content=BODY).json()


@pytest.mark.parametrize("wbits", [-15, 15, 31])
def test_a_body_may_be_just_as_long_as_the_limit(wbits):
    packer = zlib.compressobj(wbits=wbits)
    body, coding = packer.compress(b"a" * 1000) + packer.flush(), "gzip" if wbits == 31 else "deflate"
    assert inflated(body, coding, 1000) == b"a" * 1000
    with pytest.raises(Refusal, match="over the 999 bytes"):
        inflated(body, coding, 999)
    with pytest.raises(Refusal, match="cannot be read"):
        inflated(body[:-1], coding, 1000)


@pytest.mark.parametrize(
    "coding, body, status, message",
    [
        (b"\xff", BODY, 415, "Content-Encoding '?' is not known"),
        ("br", BODY, 415, "Content-Encoding 'br' is not known; send gzip, deflate, or the body as it is"),
        ("gzip, br", BODY, 415, "'gzip, br' is not known"),
        ("gzip", BODY, 400, "the compressed body cannot be read"),
        ("gzip", packed(BODY)[:-9], 400, "the compressed body cannot be read"),
        ("deflate", b"", 400, "it breaks off"),
        ("gzip", packed(b" " * 10**6 + BODY), 413, "the body is over the 100000 bytes of this server"),
        ("identity", b"\xff", 400, "what this route takes"),
        ("identity", b'{"inputs": "a", "x": ' + b"[" * 49_000 + b"]" * 49_000 + b"}", 400, "nested too deeply"),
    ],
)
def test_other_codings_broken_and_large_bodies_are_refused(shared_gateway, coding, body, status, message):
    gateway = shared_gateway("embedder", max_body_bytes=100_000)
    answer = gateway.http.post("/embed", content=body, headers={"Content-Encoding": coding})
    assert answer.status_code == status and message in failure_of(answer, "/embed")


def test_pages_of_the_origins_that_a_flag_names_may_ask(shared_gateway):
    http = shared_gateway("embedder", cors_origins=("https://a.example",)).http
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, allowed in (("https://a.example", "https://a.example"), ("https://b.example", None)):
        headers = {"Origin": origin}
        before = http.options("/embed", headers=headers | asked)
        for answer in (
            before,
            http.post("/embed", content=BODY, headers=headers),
            http.post("/embed", headers=headers),
        ):
            assert answer.headers.get("access-control-allow-origin") == allowed
        assert (before.status_code == 200) == (allowed is not None)
    answer = shared_gateway("embedder").http.post("/embed", content=BODY, headers={"Origin": "https://a.example"})
    assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers


@EACH_ROUTE
def test_an_answer_is_refused_that_takes_more_memory_than_all_may(shared_gateway, route):
    gateway = shared_gateway(kind_of(route), max_held_bytes=3)
    answer = post(gateway, route)
    assert answer.status_code == 413 and "more than the 3 bytes" in failure_of(answer, route.path)
    assert gateway.server.gateway.room.held == 0


@EACH_ROUTE
def test_a_field_that_is_not_known_is_named(shared_gateway, route):
    gateway = shared_gateway(kind_of(route))
    fields = {
        "prompt_name": "query", "task": "x", "input_type": "search_query", "instruction": "do",
        "truncation_direction": "left"
    }  # fmt: skip
    for name, value in fields.items():
        answer = post(gateway, route, **{name: value})
        assert answer.status_code == 400 and name in failure_of(answer, route.path)
    assert post(gateway, route, **dict.fromkeys(fields), user="x", parameters={}).status_code == 200


@pytest.mark.parametrize("route", [route for route in ROUTES if route.task != "tokenize"], ids=lambda route: route.path)
def test_numbers_that_are_none_are_an_error_of_their_row_alone(shared_gateway, monkeypatch, route):
    gateway = shared_gateway(kind_of(route))
    usual = gateway.model.outputs

    def spoilt(signature, rows):
        found = usual(signature, rows)
        bad = [any(b"zebra" in text for text in row) for row in rows]
        return {
            name: np.where(np.reshape(bad, [-1, *[1] * (values.ndim - 1)]), np.float32(np.nan), values)
            if values.dtype.kind == "f"
            else values
            for name, values in found.items()
        }

    monkeypatch.setattr(gateway.model, "outputs", spoilt)
    text = json.dumps(route.example)
    answer = gateway.http.post(route.path, content=re.sub("(Paris|fi|First)", r"zebra \1", text))
    assert answer.status_code == 502, answer.text
    assert "gave NaN or infinity for input 0" in failure_of(answer, route.path)
    assert gateway.http.post(route.path, content=text).status_code == 200


# Bodies that nobody would send: no crash, no hang, no stack trace; what is no answer is a 4xx with a reason.
NAMES = sorted({name for route in ROUTES for name in (*route.body.__struct_fields__, *route.example)} | {"", "x"})
TEXT = st.text(max_size=30) | st.sampled_from(["", "\0", "a " * 300, "\ud800", "🎈", "[MASK]", "default"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from([0, -1, 1, 3, 2**63, 1e400])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


def near(route):
    """The route's own example with some fields replaced: most of what is checked lies behind the first field."""
    return OBJECTS.map(lambda changes: route.example | changes)


def encoded(value):
    return json.dumps(value).encode()


@st.composite
def damaged(draw, bodies):
    """Bytes of good bodies exchanged for others, left out or put in."""
    body = bytearray(encoded(draw(bodies)))
    place = draw(st.integers(0, len(body)))
    body[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(body)


@EACH_ROUTE
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_strange_bodies(shared_gateway, route, data):
    body = data.draw(near(route).map(encoded) | damaged(near(route)) | VALUES.map(encoded) | st.binary(max_size=60))
    gateway = shared_gateway(kind_of(route))
    answer = gateway.http.post(route.path, content=body, timeout=20)
    assert answer.status_code in (200, 400, 404, 413), (body, answer.status_code, answer.text)
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    assert answer.json() is not None and (answer.status_code == 200 or failure_of(answer, route.path))
