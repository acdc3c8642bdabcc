"""numpy arrays in and out of TensorProto, without TensorFlow.

DataType numbers: tensorflow/core/framework/types.proto. A server answers in the repeated *_val fields unless it runs
with --enable_serialization_as_tensor_content; both are read.
"""

import numpy as np

from serving.protos import TensorProto
from tfrecords.base.errors import UserError

DT_STRING = 7
# bfloat16 (14) has no numpy type: it is read as the float32 with the same upper half.
DT_BFLOAT16 = 14
_NUMPY_TYPES = {
    1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 8: np.complex64, 9: np.int64,
    10: np.bool_, 17: np.uint16, 18: np.complex128, 19: np.float16, 22: np.uint32, 23: np.uint64,
}  # fmt: skip
_NUMBERS = {np.dtype(numpy_type): number for number, numpy_type in _NUMPY_TYPES.items()}
_VALUE_FIELDS = {
    1: "float_val", 2: "double_val", 3: "int_val", 4: "int_val", 5: "int_val", 6: "int_val", 8: "scomplex_val",
    9: "int64_val", 10: "bool_val", 14: "half_val", 17: "int_val", 18: "dcomplex_val", 19: "half_val",
    22: "uint32_val", 23: "uint64_val",
}  # fmt: skip
_REFERENCE_OFFSET = 100


def base_type(number: int) -> int:
    """A *_REF type (variables of TF 1 graphs) as the type it refers to."""
    return number - _REFERENCE_OFFSET if number > _REFERENCE_OFFSET else number


def type_name(number: int) -> str:
    """`int32`, `string`, ...: what a reader of a signature expects to see."""
    number = base_type(number)
    names = {DT_STRING: "string", DT_BFLOAT16: "bfloat16", 10: "bool"}
    return names.get(number) or (np.dtype(_NUMPY_TYPES[number]).name if number in _NUMPY_TYPES else f"DT_{number}")


def numpy_type(number: int) -> np.dtype:
    """The numpy type to build an input of DataType `number` in; object for strings.

    Raises UserError for types that have no numpy twin.
    """
    number = base_type(number)
    if number == DT_STRING:
        return np.dtype(object)
    if number not in _NUMPY_TYPES:
        raise UserError(f"tensors of type {type_name(number)} cannot be sent from numpy")
    return np.dtype(_NUMPY_TYPES[number])


def fill_tensor(tensor: TensorProto, value: np.ndarray | list | str | bytes | float) -> None:
    """Writes `value`, of any shape, into an empty TensorProto.

    str is sent as UTF-8 bytes, Python floats as float32, Python ints as int64.

    Raises UserError for ragged lists and for types TensorFlow has no tensor of.
    """
    try:
        array = value if isinstance(value, np.ndarray) else _as_array(value)
    except ValueError as error:
        raise UserError(f"the input is ragged: {error}; pad its rows to one length") from error
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    if array.dtype.kind in "OSU":
        tensor.dtype = DT_STRING
        tensor.string_val.extend([_as_bytes(item) for item in array.ravel().tolist()])
    elif array.dtype.newbyteorder("=") in _NUMBERS:
        tensor.dtype = _NUMBERS[array.dtype.newbyteorder("=")]
        tensor.tensor_content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    else:
        raise UserError(f"numpy type {array.dtype} has no TensorFlow twin; convert the array first")


def _as_array(value: list | str | bytes | float) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind in "SU":
        # numpy's fixed-width strings drop trailing zero bytes; objects keep them.
        return np.asarray(value, dtype=object)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _as_bytes(item: str | bytes) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise UserError(f"a string tensor cannot hold {item!r}; give str or bytes")


def read_tensor(tensor: TensorProto) -> np.ndarray:
    """The array of a TensorProto; strings as an object array of bytes, bfloat16 as float32.

    Raises ValueError when the values do not fill the shape.
    """
    number = base_type(tensor.dtype)
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if number == DT_STRING:
        array = np.empty(len(tensor.string_val), dtype=object)
        array[:] = tensor.string_val[:]
    elif tensor.tensor_content:
        stored = "<u2" if number == DT_BFLOAT16 else np.dtype(_NUMPY_TYPES[number]).newbyteorder("<")
        array = np.frombuffer(tensor.tensor_content, dtype=stored)
    else:
        array = np.array(getattr(tensor, _VALUE_FIELDS[number]), dtype=_value_type(number))
    if number == DT_BFLOAT16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif number == 19 and array.dtype == np.uint16:
        array = array.view(np.float16)
    elif number in (8, 18) and array.dtype.kind == "f":
        array = array.view(_NUMPY_TYPES[number])
    return _fill(array, shape)


def _value_type(number: int) -> type:
    """The type to read a *_val field in: half floats are stored as their bits, complex numbers as pairs."""
    special = {DT_BFLOAT16: np.uint16, 19: np.uint16, 8: np.float32, 18: np.float64}
    return special.get(number) or _NUMPY_TYPES[number]


def _fill(array: np.ndarray, shape: list[int]) -> np.ndarray:
    """TensorFlow's rule for short *_val fields: the last value repeats; no value at all means zeros."""
    size = int(np.prod(shape, dtype=np.int64))
    if array.size < size:
        missing = size - array.size
        last = array[-1:] if array.size else np.array([b"" if array.dtype == object else 0], dtype=array.dtype)
        array = np.concatenate([array, np.repeat(last, missing)])
    return array.reshape(shape)
