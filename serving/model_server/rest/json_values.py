"""JSON bodies and values, by the rules of TF Serving's json_tensor.cc."""

import base64
import json
import math
import re
import time
from typing import Any

import msgspec
from grpc import StatusCode

from serving.model_server.status import StatusError, invalid_argument
from serving.wire.json_names import repeated_name

_JSON_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number", type(None): "Null"}
_MAX_SHOWN = 1000
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_blank = re.compile(r"[ \t\r\n]*").match
_surrogates = re.compile("[\ud800-\udfff]").findall
# Numbers that TF Serving reads; Python's parser reads only some of them.
_not_finite = re.compile(r"-?(?:NaN|Inf(?:inity|(?!i)))").match
_CLOSING = {"[": "]", "{": "}"}
# Characters that are read between two looks at the clock.
_STEP = 2**21


def parse_object(body: bytes, deadline: float = math.inf) -> dict[str, Any]:
    """Returns the JSON object at the start of a body; ignores the rest.

    Invalid UTF-8 becomes surrogate escapes. NaN, Inf and Infinity, also negative, are numbers. `deadline` is in
    time.monotonic()'s seconds. Names that an object has twice are refused; TF Serving takes the first value.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The body is invalid, or valid only by the rules above: the slow parser decides.
        try:
            value, body = _read(body.decode("utf-8-sig", "surrogateescape"), deadline)
        except ValueError as error:
            raise invalid_argument(f"JSON Parse error: {error}") from error
    _check_time(deadline)
    if type(value) is not dict:
        raise format_error(value, "Is not object")
    if (name := repeated_name(body, value)) is not None:
        raise invalid_argument(f"JSON Parse error: an object has the name '{name[:50]}' twice; give it once")
    _check_time(deadline)
    return value


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise StatusError(StatusCode.DEADLINE_EXCEEDED, "the time limit of the request passed while it was parsed")


def _read(text: str, deadline: float) -> tuple[Any, bytes]:
    """Returns the value at the start of a text, and its bytes; nesting of any depth is read."""
    outer: list[tuple[str, list]] = []
    # The items of an object are its names and values in turn.
    closing, items, position, check = "", [], 0, 0
    while True:
        if position >= check:
            _check_time(deadline)
            check = position + _STEP
        position = _blank(text, position).end()
        if opened := _CLOSING.get(text[position : position + 1]):
            outer.append((closing, items))
            closing, items = opened, []
            position = _blank(text, position + 1).end()
            if not text.startswith(closing, position):
                continue
        else:
            value, position = _scalar(text, position)
            items.append(value)
        while outer:
            position = _blank(text, position).end() + 1
            sign = text[position - 1 : position]
            separator = ":" if closing == "}" and len(items) % 2 else ","
            if separator == ":" and type(items[-1]) is not str:
                raise json.JSONDecodeError("Expecting a name in double quotes before this", text, position - 1)
            if sign == separator:
                break
            if separator == ":" or sign != closing:
                raise json.JSONDecodeError(f"Expecting '{separator}'", text, position - 1)
            value = {items[i]: items[i + 1] for i in range(0, len(items), 2)} if closing == "}" else items
            closing, items = outer.pop()
            items.append(value)
        else:
            return items[0], text[:position].encode("utf-8", "surrogateescape")


def _scalar(text: str, position: int) -> tuple[Any, int]:
    try:
        value, end = _scan(text, position)
    except StopIteration:
        word = _not_finite(text, position)
        if word is None:
            raise json.JSONDecodeError("Expecting value", text, position) from None
        return float(word[0]), word.end()
    if type(value) is str and len(_surrogates(value)) > len(_surrogates(text, position, end)):
        raise json.JSONDecodeError("Half of a surrogate pair in the string", text, position)
    if type(value) is float and math.isinf(value) and text[end - 1].isdigit():
        raise json.JSONDecodeError("Number too big for a double", text, position)
    return value, end


def signature_name(document: dict[str, Any]) -> str:
    """Returns the optional "signature_name"."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise format_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
    return name


def as_bytes(value: str | dict) -> bytes:
    """Returns the bytes of a string or base64 object; StatusError for other values."""
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    if not is_base64(value):
        raise format_error(value, "not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        # Both alphabets and missing padding are accepted by the real server's decoder.
        standard = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
        return base64.b64decode(standard, validate=True)
    except ValueError as error:
        raise invalid_argument("Unable to base64 decode") from error


def is_base64(value: Any) -> bool:
    """Returns whether a value is an object that holds base64."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def is_plain_object(value: Any) -> bool:
    """Returns whether a value is an object without base64."""
    return type(value) is dict and not is_base64(value)


def format_error(value: Any, complaint: str) -> StatusError:
    """Returns the error for a value in the wrong format."""
    return invalid_argument(f"JSON Value: {shown(value)} {complaint}")


def json_type(value: Any) -> str:
    """Returns a value's type name in TF Serving's messages."""
    return str(value) if type(value) is bool else _JSON_TYPES[type(value)]


def shown(value: Any) -> str:
    """Returns JSON text for an error message, cut if long."""
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece
            if len(text) > _MAX_SHOWN:
                return text[:_MAX_SHOWN] + "..."
    except RecursionError:
        return "(nested too deeply to show)"
    return text
