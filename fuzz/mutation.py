"""Changes JSON by its structure: bytes changed at random are rarely JSON any more."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

# What readers of numbers, texts and lists expect least.
_ODD = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "\0", "\n", "../..", "/", "\ud800", "é", "𝄞", "a" * 300, "(a+)+$", "[", "{}"),
    *([], {}, [[]], [None], [[1, 2], [3]], {"": None}),
)


def change_json(data: bytes, words: tuple[str, ...], random_: random.Random) -> bytes:
    """Returns a JSON text with one to four parts replaced, removed, renamed, repeated or nested.

    words: names and values that the reader knows. Raises ValueError or RecursionError where `data` is no JSON.
    """
    document = [json.loads(data)]
    for _ in range(random_.randint(1, 4)):
        _change(document, words, random_)
    # A surrogate stays an escape, as a client may send it.
    return json.dumps(document[0]).encode()


def _change(document: list, words: tuple[str, ...], random_: random.Random) -> None:
    places = list(_places(document))
    container, key = random_.choice(places)
    value = container[key]
    # A copy: what is put in may itself be changed next.
    odd = copy.deepcopy(random_.choice((*_ODD, *words)))
    kind = random_.randrange(8)
    if kind == 0 and len(places) > 1 and container is not document:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[random_.choice(words or ("x",))] = container.pop(key)
    elif kind == 2 and isinstance(container, list) and container is not document:
        container.insert(key, copy.deepcopy(value))
    elif kind == 3:
        container[key] = copy.deepcopy(random_.choice(([value], {"x": value}, [value, value])))
    elif kind == 4:
        other, name = random_.choice(places)
        container[key] = copy.deepcopy(other[name])
    elif kind == 5 and isinstance(value, int | float):
        container[key] = value + random_.choice((-1, 1, 1000))
    elif kind == 6 and isinstance(value, dict):
        value[random_.choice(words or ("x",))] = odd
    else:
        container[key] = odd


def _places(container: Any):
    """Every (container, key or index) of a document."""
    for key in list(container) if isinstance(container, dict) else range(len(container)):
        yield container, key
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


def change_bytes(data: bytes, words: tuple[str, ...], random_: random.Random) -> bytes:
    """Returns bytes with one to four places changed, removed, repeated or filled with a word."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        place = random_.randrange(len(changed) + 1)
        end = place + random_.randint(1, 8)
        new = (
            bytes([random_.randrange(256)]),
            b"",
            bytes(changed[place:end]) * 2,
            random_.choice((*words, '"', "{", "[", "]", "}", ",", ":")).encode(),
        )
        changed[place : end if random_.randrange(2) else place] = random_.choice(new)
    return bytes(changed)


def json_mutator(prefix: int, words: tuple[str, ...]) -> Callable[[bytes, int, int], bytes]:
    """Returns libFuzzer's custom mutator for inputs of `prefix` free bytes and a JSON text.

    One input in four is changed by bytes, and so is what is no JSON.
    """

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        random_ = random.Random(seed)
        if random_.randrange(4):
            head = bytes(random_.randrange(256) for _ in range(prefix)) if random_.randrange(4) == 0 else data[:prefix]
            try:
                changed = head + change_json(data[prefix:], words, random_)
            except (ValueError, RecursionError):
                changed = change_bytes(data, words, random_)
        else:
            changed = change_bytes(data, words, random_)
        return changed if len(changed) <= max_size else change_bytes(data, (), random_)[:max_size]

    return change
