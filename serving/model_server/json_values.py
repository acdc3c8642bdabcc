"""JSON bodies and the values inside them, under the rules of TF Serving's json_tensor.cc."""

import base64
import binascii
import json
from typing import Any

from serving.model_server.status import ServingError, invalid_argument

_JSON_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number", type(None): "Null"}
_MAX_SHOWN = 1000
_PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or } or ] after an object member or array element.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
}

_DECODER = json.JSONDecoder()


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object a body begins with; what follows it is ignored. Raises ServingError.

    Strings may hold bytes that are no UTF-8 (as surrogate escapes); NaN and Infinity are numbers.
    """
    text = body.decode("utf-8-sig", "surrogateescape")
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise invalid_argument("JSON Parse error: The document is empty")
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise invalid_argument(
            f"JSON Parse error: {_PARSE_ERRORS.get(error.msg, error.msg)} at offset: {error.pos}"
        ) from None
    except RecursionError:
        # Python's parser stops far above the 254 dimensions a tensor can have.
        raise invalid_argument("JSON Parse error: lists or objects are nested too deeply") from None
    except ValueError as error:
        raise invalid_argument(f"JSON Parse error: {error}") from error
    if type(value) is not dict:
        raise invalid_argument(f"JSON Value: {shown(value)} Is not object")
    return value


def signature_name(document: dict[str, Any]) -> str:
    """The optional "signature_name". Raises ServingError when it is no string."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise invalid_argument(
            f"JSON Value: {shown(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def as_bytes(value: str | dict) -> bytes:
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
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def is_plain_object(value: Any) -> bool:
    return type(value) is dict and not is_base64(value)


def format_error(document: dict, complaint: str) -> ServingError:
    return invalid_argument(f"JSON Value: {shown(document)} {complaint}")


def json_type(value: Any) -> str:
    return str(value) if type(value) is bool else _JSON_TYPES[type(value)]


def shown(value: Any) -> str:
    try:
        text = json.dumps(value, indent=4, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to show)"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
