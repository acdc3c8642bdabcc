"""TensorProto to NumPy and back, without a Python object per element wherever the wire format allows."""

import itertools
import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving.model_server.status import invalid_argument

# Field numbers of tensorflow/core/framework/tensor.proto whose packed wire form is the array's own bytes.
_PACKED_AS_BYTES = {
    types_pb2.DT_FLOAT: (5, np.dtype(np.float32)),
    types_pb2.DT_DOUBLE: (6, np.dtype(np.float64)),
    types_pb2.DT_COMPLEX64: (9, np.dtype(np.complex64)),
    types_pb2.DT_BOOL: (11, np.dtype(np.bool_)),
    types_pb2.DT_COMPLEX128: (12, np.dtype(np.complex128)),
}
_LIST_FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
}
_HALF_TYPES = {types_pb2.DT_HALF: np.dtype(np.float16), types_pb2.DT_BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
_COMPLEX_FIELDS = {types_pb2.DT_COMPLEX64: "scomplex_val", types_pb2.DT_COMPLEX128: "dcomplex_val"}
# A string tensor of more dimensions ends the process: inside TensorFlow, NumPy's iterator takes no more.
# For numbers NumPy's limit is 64; one limit for all is simpler to tell, and no operation of TensorFlow's takes 32.
MAX_RANK = 32
# Elements that a few bytes may claim, where one value is repeated over a shape or the tensor is empty.
_MAX_CLAIMED = 2**23
_CONTENT_FIELD = 4
_LENGTH_DELIMITED = 2


def to_numpy(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """Reads a tensor as TensorFlow's Tensor::FromProto does: a list shorter than the shape repeats its last value.

    Returns an array of the proto's shape; strings are an object array of bytes. Raises ValueError when the proto is no
    tensor that may be handed to TensorFlow (unknown dtype, negative or too many dimensions, content of the wrong size,
    a shape far larger than its values).
    """
    shape = _checked_shape(proto)
    count = math.prod(shape)
    if proto.dtype == types_pb2.DT_STRING:
        return _filled(_strings(proto, count), count, np.dtype(object)).reshape(shape)
    dtype = np.dtype(tf.as_dtype(proto.dtype).as_numpy_dtype)
    if dtype.hasobject:
        raise ValueError(f"tensors of dtype {proto.dtype} cannot be sent")
    if proto.tensor_content:
        if len(proto.tensor_content) != count * dtype.itemsize:
            raise ValueError("tensor_content has the wrong size")
        if proto.dtype == types_pb2.DT_BOOL:
            # To C++ a bool of any byte but 0 and 1 is undefined behaviour.
            return (np.frombuffer(proto.tensor_content, np.uint8) != 0).reshape(shape)
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    return _filled(_listed_values(proto, dtype), count, dtype).reshape(shape)


def _checked_shape(proto: tensor_pb2.TensorProto) -> tuple[int, ...]:
    """Raises ValueError for a shape that is none, or that claims far more memory than the message itself takes."""
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0 or len(shape) > MAX_RANK:
        raise ValueError("shape is not fully defined, or has too many dimensions")
    # Dimensions of size 0 count as 1: operations allocate from the others.
    claimed = math.prod(max(size, 1) for size in shape)
    # No value takes less than a byte on the wire. ByteSize is slow on large messages, so it comes last.
    if claimed > _MAX_CLAIMED and claimed > proto.ByteSize():
        raise ValueError(f"the shape {shape} is far larger than the values sent")
    return shape


def _listed_values(proto: tensor_pb2.TensorProto, dtype: np.dtype) -> np.ndarray:
    if proto.dtype in _HALF_TYPES:
        return np.array(proto.half_val, np.int64).astype(np.uint16).view(dtype)
    if proto.dtype in _COMPLEX_FIELDS:
        parts = np.array(getattr(proto, _COMPLEX_FIELDS[proto.dtype]), dtype.type(0).real.dtype)
        return parts[: len(parts) // 2 * 2].view(dtype)
    if proto.dtype not in _LIST_FIELDS:
        return tf.make_ndarray(proto).reshape(-1)
    values = getattr(proto, _LIST_FIELDS[proto.dtype])
    wide = np.int64 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
    return np.array(values, wide).astype(dtype, copy=False)


def _strings(proto: tensor_pb2.TensorProto, count: int) -> np.ndarray:
    values = _packed_strings(proto.tensor_content, count) if proto.tensor_content else list(proto.string_val)
    result = np.empty(len(values), object)
    result[:] = values
    return result


def _packed_strings(content: bytes, count: int) -> list[bytes]:
    """Strings as Tensor::AsProtoTensorContent packs them: the sizes of all, then the bytes of all. Raises ValueError.

    (tf.io.parse_tensor reads them too, but writes every tensor that it cannot read into the server's log.)
    """
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


def _filled(values: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    if len(values) == count:
        return values
    if len(values) > count:
        return values[:count]
    result = np.full(count, values[-1] if len(values) else (b"" if dtype.hasobject else 0), dtype)
    result[: len(values)] = values
    return result


def parse_tensor(name: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    """`to_numpy` with the error a client of Predict sees."""
    try:
        return to_numpy(proto)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        # TensorFlow has no NumPy type for some numbers of DataType, and says so with each of these.
        raise invalid_argument(f"tensor parsing error: {name}") from error


def fill_proto(proto: tensor_pb2.TensorProto, value: np.ndarray, as_content: bool = False) -> None:
    """Writes `value` into an empty proto, as repeated *_val fields or (as_content) as raw bytes; strings always as
    string_val."""
    proto.MergeFromString(b"".join(_wire_pieces(value, as_content)))


def named_tensors(field: int, values: Mapping[str, np.ndarray], as_content: bool = False) -> bytes:
    """The wire form of a `map<string, TensorProto>` field: one copy of the data, where filling a message and
    serialising it makes three."""
    pieces: list[bytes | memoryview] = []
    for name, value in values.items():
        tensor = _wire_pieces(value, as_content)
        tensor_size = sum(map(len, tensor))
        key = name.encode()
        entry = [_header(1, len(key)), key, _header(2, tensor_size)]
        pieces += [_header(field, sum(map(len, entry)) + tensor_size), *entry, *tensor]
    return b"".join(pieces)


def _wire_pieces(value: np.ndarray, as_content: bool) -> list[bytes | memoryview]:
    """Parts that, put together, are a serialised TensorProto; large ones are views of the array itself."""
    value = np.asarray(value)
    proto = tensor_pb2.TensorProto()
    proto.tensor_shape.SetInParent()
    for size in value.shape:
        proto.tensor_shape.dim.add(size=size)
    if value.dtype.kind in "OSU":
        proto.dtype = types_pb2.DT_STRING
        proto.string_val.extend(value.reshape(-1).tolist())
        return [proto.SerializeToString()]
    proto.dtype = tf.as_dtype(value.dtype).as_datatype_enum
    number, dtype = (_CONTENT_FIELD, value.dtype) if as_content else _PACKED_AS_BYTES.get(proto.dtype, (None, None))
    if number is not None and value.size:
        # Not a memoryview of the array itself: bfloat16 has no buffer format.
        data = memoryview(np.ascontiguousarray(value, dtype).reshape(-1).view(np.uint8))
        return [proto.SerializeToString(), _header(number, len(data)), data]
    if proto.dtype in _HALF_TYPES:
        proto.half_val.extend(np.ascontiguousarray(value).reshape(-1).view(np.uint16).tolist())
    elif proto.dtype in _LIST_FIELDS:
        getattr(proto, _LIST_FIELDS[proto.dtype]).extend(value.reshape(-1).tolist())
    elif value.size:
        proto = tf.make_tensor_proto(value)
    return [proto.SerializeToString()]


def _header(number: int, size: int) -> bytes:
    """What stands before a length-delimited field."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
