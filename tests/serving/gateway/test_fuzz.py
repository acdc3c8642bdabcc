"""Bodies that nobody would send: no crash, no hang, no stack trace; what is no answer is a 4xx with a reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.gateway.routes.table import ROUTES
from tests.serving.gateway.conftest import failure_of, kind_of

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


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_strange_bodies(shared_gateway, route, data):
    body = data.draw(near(route).map(encoded) | damaged(near(route)) | VALUES.map(encoded) | st.binary(max_size=60))
    gateway = shared_gateway(kind_of(route))
    answer = gateway.http.post(route.path, content=body, timeout=20)
    assert answer.status_code in (200, 400, 404, 413), (body, answer.status_code, answer.text)
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    assert answer.json() is not None and (answer.status_code == 200 or failure_of(answer, route.path))
