"""Converts between numpy arrays and TensorProto, without TensorFlow.

Functions take TensorFlow's message class or that of `serving.wire.protos`. DataType numbers:
tensorflow/core/framework/types.proto; fields: tensor.proto.
"""

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from serving.wire.protos import TensorProto
from tfrecords.base.errors import UserError

DT_FLOAT, DT_INT32, DT_STRING = 1, 3, 7
# bfloat16 (14) has no numpy type.
_DT_BFLOAT16 = 14
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
# Types whose packed *_val field is the array's own bytes.
_PACKED_AS_BYTES = (1, 2, 8, 10, 18)
_FIELD_NUMBERS = {field.name: field.number for field in TensorProto.DESCRIPTOR.fields}
_REFERENCE_OFFSET = 100
# What can be sent.
Value = np.ndarray | list | str | bytes | float
# A string tensor of more dimensions ends the process: inside TensorFlow, NumPy's iterator takes no more.
# For numbers NumPy's limit is 64; one limit for all is simpler to tell, and no operation of TensorFlow's takes 32.
MAX_RANK = 32
# Elements that a few bytes may claim, where one value is repeated over a shape or the tensor is empty.
_MAX_CLAIMED = 2**23
_LENGTH_DELIMITED = 2


def base_type(number: int) -> int:
    """Returns a DataType without reference (*_REF, of variables in TF 1 graphs)."""
    return number - _REFERENCE_OFFSET if number > _REFERENCE_OFFSET else number


def type_name(number: int) -> str:
    """Returns a type's name, such as `int32` or `string`."""
    number = base_type(number)
    names = {DT_STRING: "string", _DT_BFLOAT16: "bfloat16", 10: "bool"}
    return names.get(number) or (np.dtype(_NUMPY_TYPES[number]).name if number in _NUMPY_TYPES else f"DT_{number}")


def type_number(dtype: np.dtype | type) -> int:
    """Returns the DataType of a numpy type; UserError if there is none."""
    dtype = np.dtype(dtype).newbyteorder("=")
    if dtype.kind in "OSU":
        return DT_STRING
    number = _DT_BFLOAT16 if dtype.name == "bfloat16" else _NUMBERS.get(dtype)
    if number is None:
        raise UserError(f"numpy type {dtype} has no TensorFlow twin; convert the array first")
    return number


def numpy_type(number: int, bfloat16: np.dtype | type | None = None) -> np.dtype:
    """Returns the numpy type for a DataType, object for strings; UserError if numpy has none.

    `bfloat16` is the type for bfloat16, which numpy lacks.
    """
    number = base_type(number)
    if number == DT_STRING:
        return np.dtype(object)
    found = bfloat16 if number == _DT_BFLOAT16 else _NUMPY_TYPES.get(number)
    if found is None:
        raise UserError(f"tensors of type {type_name(number)} cannot be sent from numpy")
    return np.dtype(found)


def to_numpy(tensor: TensorProto, bfloat16: np.dtype | type = np.uint16) -> np.ndarray:
    """Converts a tensor like TensorFlow's Tensor::FromProto, which repeats the last value of a list that is too short.

    Strings become an object array of bytes; `bfloat16` is the two-byte type for bfloat16, which numpy lacks.

    Raises:
        ValueError: the type is unknown, or the shape is invalid or does not fit the values.
        OverflowError: a listed value does not fit its type.
    """
    shape = checked_shape(tensor)
    count = math.prod(shape)
    if tensor.dtype == DT_STRING:
        return _filled(_strings(tensor, count), count).reshape(shape)
    if tensor.dtype not in _VALUE_FIELDS:
        raise ValueError(f"tensors of type {type_name(tensor.dtype)} cannot be read")
    dtype = np.dtype(_NUMPY_TYPES.get(tensor.dtype, bfloat16))
    if not tensor.tensor_content:
        return _filled(_listed_values(tensor, dtype), count).reshape(shape)
    if len(tensor.tensor_content) != count * dtype.itemsize:
        raise ValueError("tensor_content has the wrong size")
    if dtype.kind == "b" and np.frombuffer(tensor.tensor_content, np.uint8).max() > 1:
        raise ValueError("tensor_content holds bytes that are no bools")
    return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)


def read_tensor(tensor: TensorProto) -> np.ndarray:
    """Converts a tensor like `to_numpy`, but bfloat16 to float32."""
    array = to_numpy(tensor)
    return (array.astype(np.uint32) << 16).view(np.float32) if tensor.dtype == _DT_BFLOAT16 else array


def checked_shape(tensor: TensorProto) -> tuple[int, ...]:
    """Returns a tensor's shape; ValueError if it is invalid or far larger than the message."""
    shape = tuple([dim.size for dim in tensor.tensor_shape.dim])
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0 or len(shape) > MAX_RANK:
        raise ValueError("shape is not fully defined, or has too many dimensions")
    # Dimensions of size 0 count as 1: operations allocate from the others.
    claimed = math.prod(max(size, 1) for size in shape)
    # No value takes less than a byte on the wire. ByteSize is slow on large messages, so it comes last.
    if claimed > _MAX_CLAIMED and claimed > tensor.ByteSize():
        raise ValueError(f"the shape {shape} is far larger than the values sent")
    return shape


# Values in the *_val field, which holds half floats as integers, complex numbers as pairs.
def _listed_values(tensor: TensorProto, dtype: np.dtype) -> np.ndarray:
    field = _VALUE_FIELDS[tensor.dtype]
    values = getattr(tensor, field)
    if field == "half_val":
        return np.array(values, np.int64).astype(np.uint16).view(dtype)
    if dtype.kind == "c":
        return np.array(values, dtype.type(0).real.dtype)[: len(values) // 2 * 2].view(dtype)
    # Narrow integers wrap around, as in C++.
    return np.array(values, np.int64 if field == "int_val" else dtype).astype(dtype, copy=False)


def _strings(tensor: TensorProto, count: int) -> np.ndarray:
    values = _packed_strings(tensor.tensor_content, count) if tensor.tensor_content else list(tensor.string_val)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _packed_strings(content: bytes, count: int) -> list[bytes]:
    """Reads strings packed by Tensor::AsProtoTensorContent: first all sizes, then all bytes."""
    if count > len(content):
        raise ValueError("tensor_content has the wrong size")
    sizes, position = [], 0
    for _ in range(count):
        size, shift = 0, 0
        while True:
            byte = content[position : position + 1]
            if not byte or shift > 28:
                raise ValueError("tensor_content holds no sizes of strings")
            size |= (byte[0] & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte[0] < 0x80:
                break
        sizes.append(size)
    ends = list(itertools.accumulate(sizes, initial=position))
    if ends[-1] != len(content):
        raise ValueError("tensor_content has the wrong size")
    return [content[begin:end] for begin, end in itertools.pairwise(ends)]


def _filled(values: np.ndarray, count: int) -> np.ndarray:
    if len(values) >= count:
        return values[:count]
    # A list, not a value: numpy would make a fixed-width string of bytes, without their trailing zero bytes.
    last = values[-1:] if len(values) else [b"" if values.dtype.hasobject else 0]
    array = np.full(count, last, values.dtype)
    array[: len(values)] = values
    return array


def fill_tensor(tensor: TensorProto, value: Value) -> None:
    """Writes `value` into an empty TensorProto, numbers as tensor_content.

    str becomes UTF-8, Python floats float32, Python ints int64. UserError for ragged lists and unsupported types.

    >>> tensor = TensorProto()
    >>> fill_tensor(tensor, [[0.5, 1.5]])
    >>> read_tensor(tensor)
    array([[0.5, 1.5]], dtype=float32)
    """
    array = as_array(value)
    if array.dtype.kind in "OSU":
        _fill_header(tensor, DT_STRING, array.shape)
        tensor.string_val.extend([_as_bytes(item) for item in array.ravel().tolist()])
        return
    _fill_header(tensor, type_number(array.dtype), array.shape)
    tensor.tensor_content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def as_array(value: Value) -> np.ndarray:
    """Returns the array that `fill_tensor` sends."""
    if isinstance(value, np.ndarray):
        return value
    value = list(value) if isinstance(value, Iterator) else value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UserError(f"the input is ragged: {error}; pad its rows to one length") from error
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


def _fill_header(tensor: TensorProto, number: int, shape: tuple[int, ...]) -> None:
    tensor.dtype = number
    tensor.tensor_shape.SetInParent()
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)


def named_tensors(field: int, values: Mapping[str, np.ndarray], as_content: bool = False) -> bytes:
    """Serializes a `map<string, TensorProto>` field, and copies the data once, not three times.

    `as_content` writes numbers as tensor_content, not *_val.
    """
    pieces: list[bytes | memoryview] = []
    for name, value in values.items():
        tensor = _wire_pieces(np.asarray(value), as_content)
        tensor_size = sum(map(len, tensor))
        key = name.encode()
        entry = [_wire_header(1, len(key)), key, _wire_header(2, tensor_size)]
        pieces += [_wire_header(field, sum(map(len, entry)) + tensor_size), *entry, *tensor]
    return b"".join(pieces)


def _wire_pieces(value: np.ndarray, as_content: bool) -> list[bytes | memoryview]:
    number = type_number(value.dtype)
    tensor = TensorProto()
    _fill_header(tensor, number, value.shape)
    if number == DT_STRING:
        tensor.string_val.extend(value.reshape(-1).tolist())
        return [tensor.SerializeToString()]
    field = "tensor_content" if as_content else _VALUE_FIELDS[number]
    if value.size and (as_content or number in _PACKED_AS_BYTES):
        # Not a memoryview of the array itself: bfloat16 has no buffer format.
        data = memoryview(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        return [tensor.SerializeToString(), _wire_header(_FIELD_NUMBERS[field], len(data)), data]
    if field == "half_val":
        value = np.ascontiguousarray(value).view(np.uint16)
    if not as_content:
        getattr(tensor, field).extend(value.reshape(-1).tolist())
    return [tensor.SerializeToString()]


def _wire_header(number: int, size: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
