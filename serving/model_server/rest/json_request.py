"""Converts REST bodies to tensors and tf.Examples, by the type rules of TF Serving's json_tensor.cc."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from grpc import StatusCode

from serving.model_server.rest.json_values import as_bytes, format_error, is_base64, is_plain_object, json_type, shown
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.protos import DATA_TYPES, Example, Feature, Input, TensorInfo
from serving.wire.tensors import DT_STRING, MAX_RANK, numpy_type, type_number

TensorInfos = Mapping[str, TensorInfo]
# dtype -> types of JSON values it takes, and the NumPy type they must fit into; the narrow integers wrap around then,
# as in the real server.
_KINDS: dict[int, tuple[set[type], type]] = {
    **{type_number(one): ({int, float}, np.float64) for one in (np.float32, np.float64, np.half, ml_dtypes.bfloat16)},
    **{type_number(one): ({int}, np.int32) for one in (np.int32, np.int16, np.int8, np.uint8)},
    **{type_number(one): ({int}, one) for one in (np.int64, np.uint32, np.uint64)},
    type_number(np.bool_): ({bool}, np.bool_),
    DT_STRING: ({str, dict}, np.object_),
}
_FEATURES: dict[type, tuple[str, Callable]] = {
    bool: ("int64_list", int),
    int: ("int64_list", int),
    float: ("float_list", float),
    str: ("bytes_list", as_bytes),
    dict: ("bytes_list", as_bytes),
}
_SLICE = 2**15


def predict_inputs(document: dict[str, Any], infos: TensorInfos) -> tuple[dict[str, np.ndarray], bool]:
    """Returns arrays by input alias, and whether the body is in row format ("instances")."""
    if "instances" in document and "inputs" in document:
        raise format_error(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if "instances" in document:
        instances = document["instances"]
        if type(instances) is not list:
            raise format_error(document, "Expecting 'instances' to be an list/array")
        if not instances:
            raise format_error(document, "No values in 'instances' array")
        return _row_inputs(instances, infos), True
    if "inputs" in document:
        return _column_inputs(document["inputs"], infos), False
    raise invalid_argument("Missing 'inputs' or 'instances' key")


def _row_inputs(instances: list, infos: TensorInfos) -> dict[str, np.ndarray]:
    if type(instances[0]) is not dict and len(infos) > 1:
        raise invalid_argument(
            "instances is a plain list, but expecting list of objects as multiple "
            "input tensors required as per tensorinfo_map"
        )
    objects = is_plain_object(instances[0])
    if objects and not all(is_plain_object(row) and row.keys() == infos.keys() for row in instances):
        _check_rows(instances, infos, objects)
    columns = {name: [row[name] for row in instances] for name in infos} if objects else {min(infos): instances}
    try:
        return {name: _dense(name, column, infos[name].dtype) for name, column in columns.items()}
    except StatusError:
        _check_rows(instances, infos, objects)
        raise


def _check_rows(instances: list, infos: TensorInfos, objects: bool) -> None:
    """Raises the error of the first wrong row."""
    shapes: dict[str, list[int]] = {}
    for index, row in enumerate(instances):
        if objects != is_plain_object(row):
            expected, got = ("object", "list") if objects else ("value/list", "object")
            raise invalid_argument(f"Expecting {expected} but got {got} at item {index} of input list")
        for name, value in row.items() if objects else ((min(infos), row),):
            try:
                _check_instance(name, value, infos, shapes)
            except StatusError as error:
                key = f" key: {name}" if objects else ""
                raise invalid_argument(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error}"
                ) from None
        if objects and row.keys() != infos.keys():
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(infos))}"
            )


def _check_instance(name: str, value: Any, infos: TensorInfos, shapes: dict) -> None:
    if name not in infos:
        raise invalid_argument(f"JSON object: does not have named input: {name}")
    shape, leaves = _flattened(name, value)
    _array(leaves, infos[name].dtype)
    expected = shapes.setdefault(name, shape)
    if shape != expected:
        size = math.prod(expected)
        if size != len(leaves):
            raise invalid_argument(f"Expecting tensor size: {size} but got: {len(leaves)}")
        raise invalid_argument(f"Expecting shape {expected} but got: {shape}".replace(", ", ","))


def _column_inputs(value: Any, infos: TensorInfos) -> dict[str, np.ndarray]:
    if not is_plain_object(value):
        if len(infos) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple "
                "input tensors required as per tensorinfo_map"
            )
        value = {min(infos): value}
    result = {}
    for name, info in sorted(infos.items()):
        if name not in value:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
        result[name] = _dense(name, value[name], info.dtype)
    return result


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
                    f"JSON Value: {shown(item)} found at incorrect level: {level + 1} in the JSON DOM. "
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
            f"Conversion of JSON Value: {shown(leaves[0] if leaves else None)} to type: {_dtype_name(dtype)}",
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
            return np.array(list(map(as_bytes, leaves)) if kind is np.object_ else leaves, kind)
    # The first value that alone cannot be converted is the one to blame.
    for leaf in leaves if len(leaves) > 1 else ():
        _converted([leaf], dtype)
    kind = f"Type: {json_type(leaves[0])} is not of expected type: {_dtype_name(dtype)}"
    raise format_error(leaves[0], kind)


def _dtype_name(dtype: int) -> str:
    return DATA_TYPES[dtype].removeprefix("DT_").lower()


def examples_input(document: dict[str, Any]) -> Input:
    """Returns the "examples" of classify and regress, with the shared features of "context"."""
    result = Input()
    target = result.example_list
    if "context" in document:
        target = result.example_list_with_context
        _fill_example(document["context"], target.context)
    if "examples" not in document:
        raise format_error(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if type(examples) is not list:
        raise format_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise format_error(document, "'examples' value is an empty array")
    for example in examples:
        _fill_example(example, target.examples.add())
    return result


def _fill_example(value: Any, example: Example) -> None:
    if type(value) is not dict:
        raise invalid_argument(f"Example must be JSON object but got JSON {json_type(value)}")
    example.SetInParent()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except UnicodeEncodeError as error:
            raise invalid_argument(f"Feature name {name!r} is not UTF-8") from error
        for leaf in content if type(content) is list else (content,):
            _add_to_feature(name, leaf, feature)


def _add_to_feature(name: str, value: Any, feature: Feature) -> None:
    kind, convert = _FEATURES.get(type(value), (None, None))
    if kind is None or (type(value) is dict and not is_base64(value)):
        raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {json_type(value)}")
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise invalid_argument(
            f"Unexpected element type in feature: {name} expecting type: {present.removesuffix('_list')}"
        )
    try:
        getattr(feature, kind).value.append(convert(value))
    except ValueError:
        raise invalid_argument(f"Feature: {name} has uint64 element. Only int64 is supported.") from None
