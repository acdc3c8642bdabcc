"""The id of a request in client, gateway and server: the header and metadata `x-request-id`.

>>> with request_id("order-7") as own:
...     own, current()
('order-7', 'order-7')
>>> with request_id("no id: a blank in it") as own:
...     len(own)
32
"""

import contextlib
import re
import uuid
from collections.abc import Iterator
from contextvars import ContextVar

HEADER = "x-request-id"
# What cannot break a line of a log. A batch has the ids of its requests, joined by commas.
_PLAIN = re.compile(r"[\w.:/+=@~,-]{1,1024}", re.ASCII)
_MOST_IN_A_BATCH = 16
_current: ContextVar[str] = ContextVar("request_id", default="")


@contextlib.contextmanager
def request_id(given: str | None = None) -> Iterator[str]:
    """Sets the id of all calls in a `with` block, and yields it: `given` if it is valid, else a new one."""
    token = _current.set(accepted(given))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def accepted(given: str | None) -> str:
    """Returns `given` if it is an id of at most 1,024 allowed characters, else a new id."""
    return given if given and _PLAIN.fullmatch(given) else uuid.uuid4().hex


def current() -> str:
    """Returns the id that `request_id` set, or ""."""
    return _current.get()


def joined(ids: list[str]) -> str:
    """Returns a batch's id: its first 16 requests' ids, joined."""
    text = ",".join(list(dict.fromkeys(ids))[:_MOST_IN_A_BATCH])
    return text[: text.rfind(",", 0, 1024)] if len(text) > 1024 else text
