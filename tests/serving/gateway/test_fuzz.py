"""Bodies that nobody would send: no crash, no hang, no stack trace; what is no answer is a 4xx with a reason."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.gateway.routes import ROUTES
from tests.serving.gateway.conftest import KINDS, failure_of

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


def check(gateway, path, content):
    answer = gateway.http.post(path, content=content, timeout=20)
    assert answer.status_code in (200, 400, 404, 413), (content, answer.status_code, answer.text)
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    assert answer.status_code == 200 or failure_of(answer, path)
    return answer.status_code


def encoded(value) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
@settings(max_examples=25)
@given(data=st.data())
def test_strange_bodies(shared_gateway, route, data):
    body = data.draw(near(route).map(encoded) | VALUES.map(encoded) | st.binary(max_size=60))
    check(shared_gateway(KINDS.get(route.task, "embedder")), route.path, body)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_hundred_thousand_damaged_bodies(shared_gateway):
    """Bytes of good bodies changed, cut, doubled; and fields exchanged: faster than hypothesis makes them."""
    chance, statuses = random.Random(1), []
    odd = [None, True, -1, 0, 2**70, 1.5, "", "x", "\ud800", [], [[]], [1], [[1]], ["a", 1], {}, {"text": 1}]
    odd.append(["a"] * 3000)
    for _ in range(100_000):
        route = chance.choice(ROUTES)
        body = dict(route.example)
        for _ in range(chance.randrange(3)):
            body[chance.choice(NAMES)] = chance.choice(odd)
        content = bytearray(encoded(body))
        for _ in range(chance.choice((0, 0, 0, 1, 3))):
            place = chance.randrange(len(content))
            content[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        statuses.append(check(shared_gateway(KINDS.get(route.task, "embedder")), route.path, bytes(content)))
    assert statuses.count(200) > 10_000 and statuses.count(400) > 10_000
