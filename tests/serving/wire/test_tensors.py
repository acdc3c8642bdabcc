"""numpy arrays through TensorProto and back, against TensorFlow's own conversions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from serving.wire import tensors
from serving.wire.protos import TensorProto
from tests.refusals import refused

TYPES = [np.dtype(numpy_type) for numpy_type in tensors._NUMPY_TYPES.values()]
any_array = st.sampled_from(TYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def filled(value):
    tensor = TensorProto()
    tensors.fill_tensor(tensor, value)
    return tensor


def wheel_tensor(tensor):
    from tensorflow.core.framework import tensor_pb2

    return tensor_pb2.TensorProto.FromString(tensor.SerializeToString())


@given(array=any_array, data=st.data())
def test_what_is_written_is_read_by_us_and_by_tensorflow(tf, array, data):
    read = tensors.read_tensor(filled(array))
    assert read.dtype == array.dtype and read.shape == array.shape
    assert_array_equal(read, array)
    assert_array_equal(tf.make_ndarray(wheel_tensor(filled(array))), array)
    # A server fills float_val and its kin, not tensor_content, and the last value stands for those that are left out.
    theirs = TensorProto(dtype=filled(array).dtype)
    for size in array.shape:
        theirs.tensor_shape.dim.add(size=size)
    stored = {"float16": np.uint16, "complex64": np.float32, "complex128": np.float64}.get(
        array.dtype.name, array.dtype
    )
    listed = data.draw(st.integers(min(1, array.size), array.size))
    values = array.ravel()[:listed].view(stored)
    getattr(theirs, tensors._VALUE_FIELDS[theirs.dtype]).extend(values.tolist())
    last = np.arange(array.size).clip(max=listed - 1).reshape(array.shape)
    assert_array_equal(tensors.read_tensor(theirs), array.ravel()[last])
    assert_array_equal(tf.make_ndarray(wheel_tensor(theirs)), array.ravel()[last])


@pytest.mark.parametrize("content", [False, True])
def test_bfloat16_reads_as_float32(tf, content):
    values = np.array([1.0, -2.5, 3.140625], dtype=np.float32)
    proto = tf.make_tensor_proto(tf.cast(values, tf.bfloat16).numpy())
    if not content:
        bits = np.frombuffer(proto.tensor_content, np.uint16) if proto.tensor_content else np.array(proto.half_val)
        proto.ClearField("tensor_content")
        proto.ClearField("half_val")
        proto.half_val.extend(bits.tolist())
    read = tensors.read_tensor(TensorProto.FromString(proto.SerializeToString()))
    assert read.dtype == np.float32
    assert_array_equal(read, values)


def test_strings_are_utf8_bytes_of_any_shape_and_keep_zero_bytes():
    read = tensors.read_tensor(filled([["é", b"a\0"], ["", "z"]]))
    assert read.shape == (2, 2)
    assert read.ravel().tolist() == ["é".encode(), b"a\0", b"", b"z"]


def test_big_endian_arrays_are_sent_right():
    assert_array_equal(tensors.read_tensor(filled(np.array([1, 256], dtype=">i4"))), [1, 256])


def test_variables_references_are_their_base_type():
    assert tensors.type_name(101) == "float32"
    assert tensors.numpy_type(103) == np.int32


@pytest.mark.parametrize(
    "value, words", [([[1, 2], [3]], "ragged"), (np.array(["2020"], dtype="M8[Y]"), "datetime64"), ([None], "None")]
)
def test_what_no_tensor_holds_is_refused(value, words):
    with refused(words):
        filled(value)
