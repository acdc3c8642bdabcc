"""The id of a request on its way through client, gateway and server: the header and metadata `x-request-id`.

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
    """Sets the id of all calls in a `with` block, and yields it: `given`, or a new one where that is none or no id."""
    token = _current.set(accepted(given))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


def accepted(given: str | None) -> str:
    """Returns `given`, or a new id where it is none, has other characters than an id or more than 1,024."""
    return given if given and _PLAIN.fullmatch(given) else uuid.uuid4().hex


def current() -> str:
    """Returns the id that `request_id` set, or ""."""
    return _current.get()


def joined(ids: list[str]) -> str:
    """Returns the id of a batch of requests with these ids: of the first 16 of them."""
    text = ",".join(list(dict.fromkeys(ids))[:_MOST_IN_A_BATCH])
    return text[: text.rfind(",", 0, 1024)] if len(text) > 1024 else text
