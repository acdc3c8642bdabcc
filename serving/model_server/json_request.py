"""REST bodies of predict: JSON to tensors, under the type rules of TF Serving's json_tensor.cc."""

import itertools
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server.json_values import as_bytes, format_error, is_plain_object, json_type, shown
from serving.model_server.status import UNIMPLEMENTED, ServingError, invalid_argument

TensorInfos = Mapping[str, meta_graph_pb2.TensorInfo]
_INT32, _UINT32, _INT64, _UINT64 = (-(2**31), 2**31 - 1), (0, 2**32 - 1), (-(2**63), 2**63 - 1), (0, 2**64 - 1)
# dtype -> (NumPy dtype, range a JSON integer must fit into); the narrow types wrap around as in the real server.
_INTEGERS = {
    types_pb2.DT_INT32: (np.int32, _INT32),
    types_pb2.DT_INT16: (np.int16, _INT32),
    types_pb2.DT_INT8: (np.int8, _INT32),
    types_pb2.DT_UINT8: (np.uint8, _INT32),
    types_pb2.DT_INT64: (np.int64, _INT64),
    types_pb2.DT_UINT32: (np.uint32, _UINT32),
    types_pb2.DT_UINT64: (np.uint64, _UINT64),
}
_FLOATS = {
    types_pb2.DT_FLOAT: np.float32,
    types_pb2.DT_DOUBLE: np.float64,
    types_pb2.DT_HALF: np.float16,
    types_pb2.DT_BFLOAT16: ml_dtypes.bfloat16,
}
_NAMES = {types_pb2.DT_FLOAT: "float", types_pb2.DT_DOUBLE: "double", types_pb2.DT_HALF: "half"}


def predict_inputs(document: dict[str, Any], infos: TensorInfos) -> tuple[dict[str, np.ndarray], bool]:
    """Input alias -> array, and whether the body is in row format ("instances"). Raises ServingError."""
    if "instances" in document and "inputs" in document:
        raise format_error(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if "instances" in document:
        instances = document["instances"]
        if type(instances) is not list:
            raise format_error(document, "Excepting 'instances' to be an list/array")
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
    only = min(infos)
    shapes: dict[str, tuple[int, ...]] = {}
    leaves: dict[str, list] = {name: [] for name in infos}
    for index, element in enumerate(instances):
        if objects != is_plain_object(element):
            wanted, got = ("object", "list") if objects else ("value/list", "object")
            raise invalid_argument(f"Expecting {wanted} but got {got} at item {index} of input list")
        for name, value in element.items() if objects else ((only, element),):
            try:
                _add_instance(name, value, infos, shapes, leaves)
            except ServingError as error:
                key = f" key: {name}" if objects else ""
                raise invalid_argument(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error}"
                ) from error
        if objects and element.keys() != infos.keys():
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(element)} "
                f"keys must be equal to: {','.join(sorted(infos))}"
            )
    return {
        name: _reshaped(name, _array(leaves[name], infos[name].dtype), (len(instances), *shapes[name]))
        for name in shapes
    }


def _add_instance(name: str, value: Any, infos: TensorInfos, shapes: dict, leaves: dict) -> None:
    if name not in infos:
        raise invalid_argument(f"JSON object: does not have named input: {name}")
    shape, values = _flattened(value)
    _check_types(values, infos[name].dtype)
    expected = shapes.setdefault(name, shape)
    if shape != expected:
        sizes = int(np.prod(expected)), len(values)
        if sizes[0] != sizes[1]:
            raise invalid_argument(f"Expecting tensor size: {sizes[0]} but got: {sizes[1]}")
        raise invalid_argument(f"Expecting shape {_shape_text(expected)} but got: {_shape_text(shape)}")
    leaves[name].extend(values)


def _column_inputs(value: Any, infos: TensorInfos) -> dict[str, np.ndarray]:
    if not is_plain_object(value):
        if len(infos) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple "
                "input tensors required as per tensorinfo_map"
            )
        name = min(infos)
        return {name: _dense(name, value, infos[name].dtype)}
    result = {}
    for name, info in sorted(infos.items()):
        if name not in value:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
        result[name] = _dense(name, value[name], info.dtype)
    return result


def _dense(name: str, value: Any, dtype: int) -> np.ndarray:
    shape, leaves = _flattened(value)
    _check_types(leaves, dtype)
    return _reshaped(name, _array(leaves, dtype), shape)


def _reshaped(name: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return value.reshape(shape)
    except ValueError as error:
        raise invalid_argument(f"tensor parsing error: {name}") from error


def _flattened(value: Any) -> tuple[tuple[int, ...], list]:
    """Shape, taken from the first element at every depth, and leaves; a list of another size is an error."""
    shape = []
    probe = value
    while type(probe) is list:
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
        items = list(itertools.chain.from_iterable(items))
    if shape and list in set(map(type, items)):
        raise invalid_argument(f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}")
    return tuple(shape), items


def _check_types(leaves: list, dtype: int) -> None:
    """Raises ServingError for the first leaf that `dtype` does not take: no string is a number, no 1.5 an integer."""
    if dtype in _FLOATS:
        allowed = {int, float}
    elif dtype in _INTEGERS:
        allowed = {int}
        low, high = _INTEGERS[dtype][1]
        if set(map(type, leaves)) <= allowed and leaves and (min(leaves) < low or max(leaves) > high):
            raise _type_error(next(leaf for leaf in leaves if not low <= leaf <= high), dtype)
    elif dtype == types_pb2.DT_BOOL:
        allowed = {bool}
    elif dtype == types_pb2.DT_STRING:
        allowed = {str, dict}
    else:
        raise ServingError(
            UNIMPLEMENTED,
            f"Conversion of JSON Value: {shown(leaves[0] if leaves else None)} to type: {_dtype_name(dtype)}",
        )
    if not set(map(type, leaves)) <= allowed:
        raise _type_error(next(leaf for leaf in leaves if type(leaf) not in allowed), dtype)


def _array(leaves: list, dtype: int) -> np.ndarray:
    if dtype in _FLOATS:
        with np.errstate(over="ignore", under="ignore"):
            try:
                return np.array(leaves, np.float64).astype(_FLOATS[dtype])
            except OverflowError:
                return np.array([_as_float(leaf) for leaf in leaves], np.float64).astype(_FLOATS[dtype])
    if dtype in _INTEGERS:
        wide = np.uint64 if dtype == types_pb2.DT_UINT64 else np.int64
        return np.array(leaves, wide).astype(_INTEGERS[dtype][0])
    if dtype == types_pb2.DT_BOOL:
        return np.array(leaves, np.bool_)
    result = np.empty(len(leaves), object)
    result[:] = [as_bytes(leaf) for leaf in leaves]
    return result


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _type_error(value: Any, dtype: int) -> ServingError:
    return invalid_argument(
        f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: {_dtype_name(dtype)}"
    )


def _dtype_name(dtype: int) -> str:
    return _NAMES.get(dtype) or tf.as_dtype(dtype).name


def _shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
