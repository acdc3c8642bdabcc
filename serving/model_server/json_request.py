"""Reads REST bodies as tensors and tf.Examples, by the type rules of TF Serving's json_tensor.cc."""

import base64
import contextlib
import itertools
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from grpc import StatusCode

from serving.model_server.status import StatusError, invalid_argument
from serving.wire.json_names import repeated_name
from serving.wire.protos import DATA_TYPES, Example, Feature, Input, TensorInfo
from serving.wire.tensors import MAX_RANK, numpy_type, type_number

TensorInfos = Mapping[str, TensorInfo]
# dtype -> types of JSON values it takes, and the NumPy type they must fit into; the narrow integers wrap around then,
# as in the real server.
_KINDS: dict[int, tuple[set[type], type]] = {
    type_number(one): (types, kind or one)
    for types, kind, ones in (
        ({int, float}, np.float64, (np.float32, np.float64, np.half, ml_dtypes.bfloat16)),
        ({int}, np.int32, (np.int32, np.int16, np.int8, np.uint8)),
        ({int}, None, (np.int64, np.uint32, np.uint64)),
        ({bool}, None, (np.bool_,)),
        ({str, dict}, None, (np.object_,)),
    )
    for one in ones
}
_SLICE = 2**15
_JSON_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number", type(None): "Null"}
_MAX_SHOWN = 1000
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)
_surrogates = re.compile("[\ud800-\udfff]").findall
# Strings, and the numbers of TF Serving that Python's parser does not read. Possessive, so that it takes linear time.
_WORD = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|-NaN|\bInf\b', re.DOTALL)
_SPELT = {"-NaN": "NaN", "Inf": "Infinity"}


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError("Number too big for a double")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite)


def parse_object(body: bytes, deadline: float = math.inf) -> dict[str, Any]:
    """Returns the JSON object at the start of a body; ignores the rest.

    Invalid UTF-8 becomes surrogate escapes. NaN, Inf and Infinity, also negative, are numbers. `deadline` is in
    time.monotonic()'s seconds. Names that an object has twice are refused; TF Serving takes the first value.
    """
    check_time(deadline)
    try:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # The body is invalid, or valid only by the rules above.
            value, body = _read(body.decode("utf-8-sig", "surrogateescape"))
        check_time(deadline)
        name = repeated_name(body, value)
    except (ValueError, RecursionError) as error:
        # Behind a semicolon Python names its own function for longer numbers.
        said = "the body is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
        raise invalid_argument(f"JSON Parse error: {said}") from error
    if type(value) is not dict:
        raise _format_error(value, "Is not object")
    if name is not None:
        raise invalid_argument(f"JSON Parse error: an object has the name '{name[:50]}' twice; give it once")
    return value


def check_time(deadline: float) -> None:
    """Raises DEADLINE_EXCEEDED after `deadline`."""
    if time.monotonic() >= deadline:
        raise StatusError(StatusCode.DEADLINE_EXCEEDED, "the time limit of the request passed before its run")


def _read(text: str) -> tuple[Any, bytes]:
    # Returns the value at the start of a text, and its bytes.
    text = _WORD.sub(lambda found: _SPELT.get(found[0], found[0]), text).lstrip(" \t\r\n")
    value, end = _DECODER.raw_decode(text)
    if len(_surrogates(json.dumps(value, ensure_ascii=False))) > len(_surrogates(text[:end])):
        raise ValueError("Half of a surrogate pair in a string")
    return value, text[:end].encode("utf-8", "surrogateescape")


def signature_name(document: dict[str, Any]) -> str:
    """Returns the optional "signature_name"."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise _format_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
    return name


def _as_bytes(value: str | dict) -> bytes:
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    if not _is_base64(value):
        raise _format_error(value, "not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        # Both alphabets and missing padding are accepted by the real server's decoder.
        standard = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
        return base64.b64decode(standard, validate=True)
    except ValueError as error:
        raise invalid_argument("Unable to base64 decode") from error


def _is_base64(value: Any) -> bool:
    """Returns whether a value is an object that holds base64."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def _is_plain_object(value: Any) -> bool:
    """Returns whether a value is an object without base64."""
    return type(value) is dict and not _is_base64(value)


def _format_error(value: Any, complaint: str) -> StatusError:
    """Returns the error for a value in the wrong format."""
    return invalid_argument(f"JSON Value: {_shown(value)} {complaint}")


def _json_type(value: Any) -> str:
    """Returns a value's type name in TF Serving's messages."""
    return str(value) if type(value) is bool else _JSON_TYPES[type(value)]


def _shown(value: Any) -> str:
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


def predict_inputs(document: dict[str, Any], infos: TensorInfos) -> tuple[dict[str, np.ndarray], bool]:
    """Returns arrays by input alias, and whether the body is in row format ("instances")."""
    rows = document.get("instances")
    if "inputs" in document and "instances" in document:
        complaint = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
    elif "inputs" in document:
        return _column_inputs(document["inputs"], infos), False
    elif "instances" not in document:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    elif rows and type(rows) is list:
        return _row_inputs(rows, infos), True
    else:
        complaint = "No values in 'instances' array" if rows == [] else "Expecting 'instances' to be an list/array"
    raise _format_error(document, complaint)


def _row_inputs(rows: list, infos: TensorInfos) -> dict[str, np.ndarray]:
    only = min(infos)
    if type(rows[0]) is not dict and len(infos) > 1:
        raise _needs_names("instances is a plain list, but expecting list of objects")
    objects, said = _is_plain_object(rows[0]), ""
    try:
        columns = {name: [row[name] for row in rows] for name in infos} if objects else {only: rows}
        if not objects or all(_is_plain_object(row) and len(row) == len(infos) for row in rows):
            return {name: _dense(name, column, infos[name].dtype) for name, column in columns.items()}
    except (StatusError, KeyError, TypeError) as error:
        said = str(error)
    raise invalid_argument(next(_wrong_rows(rows, infos, objects), said))


def _wrong_rows(rows: list, infos: TensorInfos, objects: bool) -> Iterator[str]:
    """Yields a sentence on the first wrong row; what follows it means nothing."""
    shapes: dict[str, list[int]] = {}
    expected, got = ("object", "list") if objects else ("value/list", "object")
    for index, row in enumerate(rows):
        this = f"Failed to process element: {index} of 'instances' list."
        if objects != _is_plain_object(row):
            yield f"Expecting {expected} but got {got} at item {index} of input list"
        if objects and row.keys() != infos.keys():
            yield f"{this} JSON object: {_shown(row)} keys must be equal to: {','.join(sorted(infos))}"
        for name, value in row.items() if objects else [(min(infos), row)]:
            try:
                shape = list(_dense(name, value, infos[name].dtype).shape)
            except StatusError as error:
                yield f"{this} Error: {error}"
            if shape != (first := shapes.setdefault(name, shape)):
                yield f"{this} Expecting shape {first} but got: {shape}".replace(", ", ",")


def _needs_names(complaint: str) -> StatusError:
    return invalid_argument(f"{complaint} as multiple input tensors required as per tensorinfo_map")


def _column_inputs(value: Any, infos: TensorInfos) -> dict[str, np.ndarray]:
    if not _is_plain_object(value):
        if len(infos) > 1:
            raise _needs_names("inputs is a plain value/list, but expecting an object")
        value = {min(infos): value}
    if missing := sorted(infos.keys() - value.keys()):
        raise invalid_argument(f"Missing named input: {missing[0]} in 'inputs' object.")
    return {name: _dense(name, value[name], info.dtype) for name, info in infos.items()}


def _dense(name: str, value: Any, dtype: int) -> np.ndarray:
    shape, leaves = _flattened(name, value)
    return _array(leaves, dtype).reshape(shape)


def _flattened(name: str, value: Any) -> tuple[list[int], list]:
    shape: list[int] = []
    probe = value
    while type(probe) is list:
        if len(shape) == MAX_RANK:
            raise invalid_argument(f"tensor parsing error: {name}")
        shape.append(len(probe))
        probe = probe[0] if probe else None
    items = [value]
    for level, size in enumerate(shape):
        for item in items:
            if type(item) is not list:
                raise invalid_argument(
                    f"JSON Value: {_shown(item)} found at incorrect level: {level + 1} in the JSON DOM. "
                    f"Expected at level: {len(shape)}"
                )
            if len(item) != size:
                raise invalid_argument(
                    f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {size}"
                )
        items = items[0] if len(items) == 1 else list(itertools.chain.from_iterable(items))
    if any(list in set(map(type, items[part])) for part in _slices(items)):
        raise invalid_argument(f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}")
    return shape, items


def _slices(leaves: list) -> Iterator[slice]:
    # Yields slices that take a few milliseconds of C code, so that other threads can run.
    return (slice(begin, begin + _SLICE) for begin in range(0, len(leaves), _SLICE))


def _array(leaves: list, dtype: int) -> np.ndarray:
    # Converts JSON values to an array [n]; refuses strings for numbers, and 1.5 for an integer.
    if dtype not in _KINDS:
        raise StatusError(
            StatusCode.UNIMPLEMENTED,
            f"Conversion of JSON Value: {_shown(leaves[0] if leaves else None)} to type: {_dtype_name(dtype)}",
        )
    result = np.empty(len(leaves), numpy_type(dtype, ml_dtypes.bfloat16))
    for part in _slices(leaves):
        with np.errstate(over="ignore", under="ignore"):
            result[part] = _converted(leaves[part], dtype)
    return result


def _converted(leaves: list, dtype: int) -> np.ndarray:
    allowed, kind = _KINDS[dtype]
    with contextlib.suppress(OverflowError):
        if set(map(type, leaves)) <= allowed:
            return np.array(list(map(_as_bytes, leaves)) if kind is np.object_ else leaves, kind)
    # The first value that alone cannot be converted is the one to blame.
    for leaf in leaves if len(leaves) > 1 else ():
        _converted([leaf], dtype)
    kind = f"Type: {_json_type(leaves[0])} is not of expected type: {_dtype_name(dtype)}"
    raise _format_error(leaves[0], kind)


def _dtype_name(dtype: int) -> str:
    return DATA_TYPES[dtype].removeprefix("DT_").lower()


def examples_input(document: dict[str, Any]) -> Input:
    """Returns the "examples" of classify and regress, with the shared features of "context"."""
    result = Input()
    target = result.example_list
    if "context" in document:
        target = result.example_list_with_context
        _fill_example(document["context"], target.context)
    examples = document.get("examples")
    if type(examples) is not list or not examples:
        raise _format_error(document, "Expecting 'examples' value to be an list/array, and not an empty one")
    for example in examples:
        _fill_example(example, target.examples.add())
    return result


def _fill_example(value: Any, example: Example) -> None:
    if type(value) is not dict:
        raise invalid_argument(f"Example must be JSON object but got JSON {_json_type(value)}")
    example.SetInParent()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except UnicodeEncodeError as error:
            raise invalid_argument(f"Feature name {name!r} is not UTF-8") from error
        for leaf in content if type(content) is list else (content,):
            _add_to_feature(name, leaf, feature)


_FEATURES = {str: "bytes_list", dict: "bytes_list", float: "float_list", int: "int64_list", bool: "int64_list"}


def _add_to_feature(name: str, value: Any, feature: Feature) -> None:
    kind = _FEATURES.get(type(value))
    present = feature.WhichOneof("kind") or kind
    if kind is None:
        complaint = f"{name} has element with unexpected JSON type: {_json_type(value)}"
    elif present != kind:
        complaint = f"{name} has an element of another type than {present.removesuffix('_list')}"
    else:
        try:
            getattr(feature, kind).value.append(_as_bytes(value) if kind == "bytes_list" else value)
            return
        except ValueError:
            complaint = f"{name} has uint64 element. Only int64 is supported."
    raise invalid_argument(f"Feature: {complaint}")
