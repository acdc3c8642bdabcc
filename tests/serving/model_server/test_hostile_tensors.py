"""Tensors and JSON that no client should send, against a server in a process of its own: what TensorFlow cannot take
does not raise, it ends the process."""

import http.client
import json
import subprocess
import sys
import time

import grpc
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.wire.tensors import MAX_RANK, to_numpy

DTYPES = ["string", "float32", "bool", "int8", "int32", "int64", "uint64", "float16", "bfloat16", "complex64"]
# Blames the client, or says that the answer cannot be made; anything else is the server's fault.
BLAMES_CLIENT = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"}


class Victim:
    """A server process, and ways to ask it."""

    def __init__(self, base, port, rest_port):
        arguments = (f"--port={port}", f"--rest_api_port={rest_port}", f"--model_base_path={base}")
        self.process = subprocess.Popen([sys.executable, "-m", "serving.model_server", *arguments])
        self.rest_port = rest_port
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
        grpc.channel_ready_future(self.channel).result(60)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def predict(self, signature, **inputs):
        """The status' name and the message or the response."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "default"
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(value)
        try:
            return "OK", self.stub.Predict(request, 20)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def post(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=20)
        connection.request("POST", "/v1/models/default:predict", body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def stop(self):
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(30) == 0, "the server died of a request"


@pytest.fixture(scope="module")
def victim(build, tmp_path_factory):
    def echo(dtype):
        return tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[tf.TensorSpec(None, tf.as_dtype(dtype))])

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string), tf.TensorSpec([None], tf.int64)])
    def reshape(x, shape):
        return {"y": tf.reshape(x, shape)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def number(x):
        return {"y": tf.strings.to_number(x)}

    base = tmp_path_factory.mktemp("victim")
    build.function(base / "1", serving_default=echo("string"), reshape=reshape, number=number,
                   **{name: echo(name) for name in DTYPES})  # fmt: skip
    running = Victim(base, build.free_port(), build.free_port())
    yield running
    running.stop()


def proto(dtype, shape, **values):
    result = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum, **values)
    result.tensor_shape.SetInParent()
    for size in shape:
        result.tensor_shape.dim.add(size=size)
    return result


@pytest.mark.parametrize("rank", [MAX_RANK, MAX_RANK + 1, 64, 65, 254, 300])
def test_too_many_dimensions_end_no_process(victim, rank):
    for dtype in DTYPES:
        code, message = victim.predict(dtype, x=proto(dtype, [1] * rank))
        assert code == ("OK" if rank <= MAX_RANK else "INVALID_ARGUMENT"), (dtype, message)
        for value in ("1", '"a"'):
            for signature, key in ((dtype, "inputs"), (dtype, "instances")):
                body = f'{{"signature_name": "{signature}", "{key}": {"[" * rank}{value}{"]" * rank}}}'
                assert victim.post(body)[0] in ((200, 400, 501) if rank <= MAX_RANK else (400, 501))
    assert victim.process.poll() is None


@pytest.mark.parametrize("rank", [MAX_RANK, MAX_RANK + 1, 64])
def test_answers_of_too_many_dimensions_end_no_process(victim, rank):
    """Nothing odd is sent: the model itself makes the tensor that cannot be converted."""
    code, answer = victim.predict(
        "reshape", x=proto("string", [1], string_val=[b"a"]), shape=proto("int64", [rank], int64_val=[1])
    )
    assert code == ("OK" if rank <= MAX_RANK else "INVALID_ARGUMENT")
    assert rank <= MAX_RANK or "more than the 32 dimensions" in answer


def test_answers_that_numpy_cannot_hold(victim):
    """An empty tensor with a dimension so large that the sizes of the others overflow."""
    inputs = {"x": proto("string", [0]), "shape": proto("int64", [2], int64_val=[0, 2**62])}
    assert victim.predict("reshape", **inputs)[0] == "INVALID_ARGUMENT"


def test_names_that_are_no_utf8(victim):
    """Raw bytes, and half a surrogate pair as if it were a character."""
    for name in (b"\xff", b"\xed\xa0\x80"):
        status, _ = victim.post(b'{"instances": [{"' + name + b'": "a"}]}')
        assert status == 400
        status, _ = victim.post(b'{"signature_name": "' + name + b'", "inputs": "a"}')
        assert status == 400


@pytest.mark.parametrize(
    "shape", [[2**62], [2**31, 2**31], [0, 2**40], [2**40, 0], [2**20, 2**20], [-1], [2**63 - 1, 2]]
)
@pytest.mark.parametrize("dtype", ["string", "float32", "int8"])
def test_a_few_bytes_cannot_claim_much_memory(shape, dtype):
    with pytest.raises(ValueError):
        to_numpy(proto(dtype, shape, string_val=[b"a"], int_val=[1], float_val=[1.0]))


def test_one_value_still_fills_a_shape():
    assert to_numpy(proto("float32", [1000, 1000], float_val=[2.0])).sum() == 2e6
    assert to_numpy(proto("string", [3], string_val=[b"a"])).tolist() == [b"a"] * 3
    assert to_numpy(proto("float32", [0, 768])).shape == (0, 768)


def test_strings_as_content_are_read():
    """As a C++ client's AsProtoTensorContent writes them: all sizes, then all bytes."""
    assert to_numpy(proto("string", [2, 1], tensor_content=b"\x01\x02abc")).tolist() == [[b"a"], [b"bc"]]
    for junk in (b"\x01", b"\x01\x02ab", b"\x01\x02abcd", b"\xff\xff\xff\xff\xff\xff\x01"):
        with pytest.raises(ValueError):
            to_numpy(proto("string", [2, 1], tensor_content=junk))


def test_any_true_byte_of_a_bool_is_true():
    assert to_numpy(proto("bool", [3], tensor_content=b"\x00\x01\x05")).view("u1").tolist() == [0, 1, 1]


def test_bytes_that_are_no_utf8_in_tensorflow_s_message(victim):
    code, message = victim.predict("number", x=proto("string", [1], string_val=[b"\xff\xfe"]))
    assert code == "INVALID_ARGUMENT"
    assert "could not correctly convert string" in message
    status, content = victim.post(b'{"signature_name": "number", "inputs": ["\xff"]}')
    assert (status, b"could not correctly convert string" in content) == (400, True)


sizes = st.integers(-2, 4) | st.sampled_from([0, 1, 2**31, 2**40, 2**62, 2**63 - 1])
shapes = st.builds(
    tensor_shape_pb2.TensorShapeProto,
    dim=st.lists(st.builds(tensor_shape_pb2.TensorShapeProto.Dim, size=sizes), max_size=4)
    | st.integers(0, 70).map(lambda rank: [tensor_shape_pb2.TensorShapeProto.Dim(size=1)] * rank),
    unknown_rank=st.sampled_from([False] * 9 + [True]),
)
tensors = st.builds(
    tensor_pb2.TensorProto,
    dtype=st.sampled_from([tf.as_dtype(name).as_datatype_enum for name in DTYPES] * 3 + types_pb2.DataType.values()),
    tensor_shape=shapes,
    tensor_content=st.just(b"") | st.binary(max_size=16),
    float_val=st.lists(st.floats(width=32), max_size=3),
    int_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    int64_val=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    bool_val=st.lists(st.booleans(), max_size=3),
    string_val=st.lists(st.binary(max_size=3), max_size=3),
    half_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    scomplex_val=st.lists(st.floats(width=32), max_size=3),
)
leaves = st.none() | st.booleans() | st.floats() | st.integers() | st.integers(2**63, 2**70) | st.text(max_size=3)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "b64", "shape"]), inner, max_size=2)
        | st.tuples(st.integers(1, 70), inner).map(lambda pair: nested(*pair))
    ),
    max_leaves=8,
)


def nested(rank, value):
    for _ in range(rank):
        value = [value]
    return value


signatures = st.sampled_from([*DTYPES, "reshape", "number"])
keys = st.sampled_from(["inputs", "instances"])


def examples(few):
    """Few each time, many on request."""
    many = pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("count", [few, many])


@examples(200)
def test_any_tensor_is_answered_and_ends_no_process(victim, count):
    @settings(max_examples=count, deadline=None)
    @given(signatures, tensors, tensors)
    def send(signature, x, shape):
        code, message = victim.predict(signature, x=x, **({"shape": shape} if signature == "reshape" else {}))
        assert code == "OK" or code in BLAMES_CLIENT, message

    send()
    assert victim.process.poll() is None


@examples(150)
def test_any_json_is_answered_and_ends_no_process(victim, count):
    @settings(max_examples=count, deadline=None)
    @given(signatures, keys, values)
    def send(signature, key, value):
        status, content = victim.post(json.dumps({"signature_name": signature, key: value}))
        assert status in (200, 400, 501), content

    send()
    assert victim.process.poll() is None


def test_the_server_lives(victim):
    """Last: a process that a request has ended may take a moment to go."""
    time.sleep(0.2)
    assert victim.process.poll() is None
    assert victim.predict("string", x=proto("string", [1], string_val=[b"a"]))[0] == "OK"
