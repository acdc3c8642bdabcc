"""JSON bodies and values, by the rules of TF Serving's json_tensor.cc."""

import base64
import binascii
import contextlib
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
_PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' or '}'": "Missing a comma or } after an object member.",
    "Expecting ',' or ']'": "Missing a comma or ] after an array element.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Invalid control character at": "Invalid encoding in string.",
}


def _double(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number too big to be stored in double.")
    return value


_DECODER = json.JSONDecoder(parse_float=_double)
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)
_blank = re.compile(r"[ \t\r\n]*").match
_CLOSING = {"[": "]", "{": "}", list: "]", dict: "}"}
# One escape; the group is a surrogate without its other half.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
# Numbers that RapidJSON reads; Python's parser reads only some of them.
_not_finite = re.compile(r"-?(?:NaN|Inf(?:inity|(?!i)))").match
# Python's parser reads this in about 50 ms, in which all other requests wait.
_SOON_PARSED = 2**21


def parse_object(body: bytes, deadline: float = math.inf) -> dict[str, Any]:
    """Returns the JSON object at the start of a body; ignores the rest.

    Invalid UTF-8 becomes surrogate escapes. NaN, Inf and Infinity, also negative, are numbers. `deadline` is in
    time.monotonic()'s seconds. Names that an object has twice are refused; TF Serving takes the first value.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The body is invalid, or valid only by the rules above; the slower parsers decide, and describe the error.
        value, body = _exactly(body, deadline)
    _check_time(deadline)
    if type(value) is not dict:
        raise invalid_argument(f"JSON Value: {shown(value)} Is not object")
    if (name := repeated_name(body, value)) is not None:
        raise invalid_argument(f"JSON Parse error: an object has the name '{name[:50]}' twice; give it once")
    _check_time(deadline)
    return value


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise StatusError(StatusCode.DEADLINE_EXCEEDED, "the time limit of the request passed while it was parsed")


def _exactly(body: bytes, deadline: float) -> tuple[Any, bytes]:
    """Returns the value at the start of a body, and its text."""
    text = body.decode("utf-8-sig", "surrogateescape")
    start = _blank(text).end()
    if start == len(text):
        raise invalid_argument("JSON Parse error: The document is empty")
    try:
        value, end = _decoded(text, start, deadline)
    except json.JSONDecodeError as error:
        raise _parse_error(_PARSE_ERRORS.get(error.msg, error.msg), error.pos) from None
    except ValueError as error:
        raise invalid_argument(f"JSON Parse error: {error}") from error
    lone = "\\u" in text and next((match for match in _ESCAPE.finditer(text, start, end) if match[1]), None)
    if lone:
        raise _parse_error("The surrogate pair in string is invalid.", lone.start())
    return value, text[start:end].encode("utf-8", "surrogateescape")


def _parse_error(complaint: str, position: int) -> StatusError:
    return invalid_argument(f"JSON Parse error: {complaint} at offset: {position}")


def _decoded(text: str, start: int, deadline: float) -> tuple[Any, int]:
    if len(text) <= _SOON_PARSED:
        # The parser below reads what is nested deeper, and tells a list from an object in what it says of an error.
        with contextlib.suppress(RecursionError, json.JSONDecodeError):
            return _DECODER.raw_decode(text, start)
    return _iteratively_decoded(text, start, deadline)


def _iteratively_decoded(text: str, position: int, deadline: float) -> tuple[Any, int]:
    # Decodes like JSONDecoder.raw_decode, but without recursion, and lets other threads run.
    containers: list[list | dict] = []
    keys: list[str] = []
    check = position
    while True:
        if position >= check:
            _check_time(deadline)
            check = position + _SOON_PARSED
        opening = text[position : position + 1]
        if opening == "[" or opening == "{":
            value = [] if opening == "[" else {}
            position = _blank(text, position + 1).end()
            if not text.startswith(_CLOSING[opening], position):
                containers.append(value)
                if opening == "{":
                    position = _read_key(text, position, keys)
                continue
            position += 1
        else:
            try:
                value, position = _DECODER.scan_once(text, position)  # type: ignore[attr-defined]
            except StopIteration as error:
                word = _not_finite(text, position)
                if word is None:
                    raise json.JSONDecodeError("Expecting value", text, error.value) from None
                value, position = float(word[0]), word.end()
        while True:
            if not containers:
                return value, position
            container = containers[-1]
            if type(container) is list:
                container.append(value)
            else:
                container[keys.pop()] = value
            position = _blank(text, position).end()
            closing = _CLOSING[type(container)]
            if text.startswith(closing, position):
                value = containers.pop()
                position += 1
                continue
            if not text.startswith(",", position):
                raise json.JSONDecodeError(f"Expecting ',' or '{closing}'", text, position)
            position = _blank(text, position + 1).end()
            if type(container) is dict:
                position = _read_key(text, position, keys)
            break


def _read_key(text: str, position: int, keys: list[str]) -> int:
    if not text.startswith('"', position):
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, position)
    key, position = json.decoder.scanstring(text, position + 1)  # type: ignore[attr-defined]
    position = _blank(text, position).end()
    if not text.startswith(":", position):
        raise json.JSONDecodeError("Expecting ':' delimiter", text, position)
    keys.append(key)
    return _blank(text, position + 1).end()


def signature_name(document: dict[str, Any]) -> str:
    """Returns the optional "signature_name"."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise invalid_argument(
            f"JSON Value: {shown(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def as_bytes(value: str | dict) -> bytes:
    """Returns the bytes of a string or base64 object; StatusError for other values."""
    if type(value) is str:
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise invalid_argument("JSON Parse error: The surrogate pair in string is invalid.") from error
    if not is_base64(value):
        raise invalid_argument(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        # Both alphabets and missing padding are accepted by the real server's decoder.
        standard = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
        return base64.b64decode(standard.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise invalid_argument("Unable to base64 decode") from error


def is_base64(value: Any) -> bool:
    """Returns whether a value is an object that holds base64."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def is_plain_object(value: Any) -> bool:
    """Returns whether a value is an object without base64."""
    return type(value) is dict and not is_base64(value)


def format_error(document: dict, complaint: str) -> StatusError:
    """Returns the error for a body in the wrong format."""
    return invalid_argument(f"JSON Value: {shown(document)} {complaint}")


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
