"""What no client should send, against a server in a process of its own: what TensorFlow cannot take does not raise, it
ends the process. At its end, the process finishes what runs."""

import json
import os
import signal

import grpc
import httpx
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from serving.wire.tensors import MAX_RANK, to_numpy
from tests.servers import free_port
from tests.serving.model_server.conftest import (
    LISTENING,
    config_text,
    is_refused,
    predict_request,
    sockets,
    wait_until,
)

KINDS = ["string", "float32", "bool", "int8", "int32", "int64", "uint64", "float16", "bfloat16", "complex64"]
# Blames the client, or says that the answer cannot be made; anything else is the server's fault.
BLAMES_CLIENT = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"}


class Victim:
    """The process, and ways to ask it."""

    def __init__(self, launch, folder, **models):
        (folder / "models.config").write_text(config_text(**models))
        self.port, self.rest_port, self.log = free_port(), free_port(), folder / "access.log"
        self.process = launch(
            f"--port={self.port}", f"--rest_api_port={self.rest_port}", f"--model_config_file={folder}/models.config",
            f"--access_log={self.log}", "--bogus=1"
        )  # fmt: skip
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.max_receive_message_length", -1)])
        grpc.channel_ready_future(self.channel).result(120)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def predict(self, signature, **inputs):
        """The status' name and the message or the response."""
        try:
            return "OK", self.stub.Predict(predict_request("zoo", signature, **inputs), 60)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def post(self, body):
        url = f"http://127.0.0.1:{self.rest_port}/v1/models/zoo:predict"
        answer = httpx.post(url, content=body, timeout=60, verify=False)
        return answer.status_code, answer.text


@pytest.fixture(scope="module")
def victim(launch, zoo, held, tmp_path_factory):
    running = Victim(launch, tmp_path_factory.mktemp("victim"), zoo=zoo, held=held)
    yield running
    running.channel.close()


def proto(dtype, shape, **values):
    result = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum, **values)
    result.tensor_shape.SetInParent()
    for size in shape:
        result.tensor_shape.dim.add(size=size)
    return result


@pytest.mark.parametrize("rank", [MAX_RANK, MAX_RANK + 1, 64, 65, 254, 300])
def test_too_many_dimensions_end_no_process(victim, rank):
    for dtype in KINDS:
        code, message = victim.predict(dtype, x=proto(dtype, [1] * rank))
        assert code == ("OK" if rank <= MAX_RANK else "INVALID_ARGUMENT"), (dtype, message)
        for value, key in (("1", "inputs"), ('"a"', "inputs"), ('"a"', "instances")):
            body = f'{{"signature_name": "{dtype}", "{key}": {"[" * rank}{value}{"]" * rank}}}'
            assert victim.post(body)[0] in ((200, 400, 501) if rank <= MAX_RANK else (400, 501))
    # Nothing odd is sent: the model itself makes the tensor that cannot be converted.
    shape = proto("int64", [rank], int64_val=[1])
    code, answer = victim.predict("reshape", x=proto("string", [1], string_val=[b"a"]), shape=shape)
    assert code == ("OK" if rank <= MAX_RANK else "INVALID_ARGUMENT")
    assert not MAX_RANK < rank < 254 or "more than the 32 dimensions" in answer


def test_answers_that_numpy_cannot_hold(victim):
    """An empty tensor with a dimension so large that the sizes of the others overflow."""
    inputs = {"x": proto("string", [0]), "shape": proto("int64", [2], int64_val=[0, 2**62])}
    assert victim.predict("reshape", **inputs)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("dtype", ["string", "float32", "int8"])
def test_a_few_bytes_cannot_claim_much_memory(dtype):
    for shape in ([2**62], [2**31, 2**31], [0, 2**40], [2**40, 0], [2**20, 2**20], [-1], [2**63 - 1, 2]):
        with pytest.raises(ValueError):
            to_numpy(proto(dtype, shape, string_val=[b"a"], int_val=[1], float_val=[1.0]))
    assert to_numpy(proto("float32", [1000, 1000], float_val=[2.0])).sum() == 2e6, "one value still fills a shape"


@pytest.mark.parametrize("junk", [b"\x01", b"\x01\x02ab", b"\x01\x02abcd", b"\xff\xff\xff\xff\xff\xff\x01"])
def test_strings_as_content_must_be_as_long_as_they_say(junk):
    with pytest.raises(ValueError):
        to_numpy(proto("string", [2, 1], tensor_content=junk))


sizes = st.integers(-2, 4) | st.sampled_from([0, 1, 2**31, 2**40, 2**62, 2**63 - 1])
shapes = st.builds(
    tensor_shape_pb2.TensorShapeProto,
    dim=st.lists(st.builds(tensor_shape_pb2.TensorShapeProto.Dim, size=sizes), max_size=4)
    | st.integers(0, 70).map(lambda rank: [tensor_shape_pb2.TensorShapeProto.Dim(size=1)] * rank),
    unknown_rank=st.sampled_from([False] * 9 + [True]),
)
FIELDS = {
    "float_val": st.floats(width=32), "scomplex_val": st.floats(width=32), "bool_val": st.booleans(),
    "int_val": st.integers(-(2**31), 2**31 - 1), "half_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": st.integers(-(2**63), 2**63 - 1), "string_val": st.binary(max_size=3)
}  # fmt: skip
tensors = st.builds(
    tensor_pb2.TensorProto,
    dtype=st.sampled_from([tf.as_dtype(name).as_datatype_enum for name in KINDS] * 3 + types_pb2.DataType.values()),
    tensor_shape=shapes,
    tensor_content=st.just(b"") | st.binary(max_size=16),
    **{name: st.lists(values, max_size=3) for name, values in FIELDS.items()},
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


# Of a type that TensorFlow alone reads, with a value that it does not hold.
TOO_LARGE = tensor_pb2.TensorProto(dtype=types_pb2.DT_QINT8, int_val=[300])
# A byte that is no bool, which an answer cannot hold.
REFERENCE = proto("bool", [1], tensor_content=b"\x80")
REFERENCE.dtype = types_pb2.DT_BOOL_REF
signatures = st.sampled_from([*KINDS, "reshape", "number"])
# Few each time, many on request.
many = pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("count", [150, many])
def test_any_tensor_is_answered_and_ends_no_process(victim, count):
    @settings(max_examples=count)
    @given(signatures, tensors, tensors)
    # A type that NumPy has none for, bits of half floats that their two bytes do not hold, and a reference.
    @example("float32", tensor_pb2.TensorProto(dtype=types_pb2.DT_QINT8), tensor_pb2.TensorProto())
    @example("int8", TOO_LARGE, tensor_pb2.TensorProto())
    @example("float16", proto("float16", [1], half_val=[-1]), tensor_pb2.TensorProto())
    @example("bool", REFERENCE, tensor_pb2.TensorProto())
    def send(signature, x, shape):
        code, message = victim.predict(signature, x=x, **({"shape": shape} if signature == "reshape" else {}))
        assert code == "OK" or code in BLAMES_CLIENT, message

    send()
    assert victim.process.runs()


@pytest.mark.parametrize("count", [100, many])
def test_any_json_is_answered_and_ends_no_process(victim, count):
    @settings(max_examples=count)
    @given(signatures, st.sampled_from(["inputs", "instances"]), values)
    def send(signature, key, value):
        status, content = victim.post(json.dumps({"signature_name": signature, key: value}))
        assert status in (200, 400, 501), content

    send()
    assert victim.process.runs()


@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
def test_any_bytes_get_a_status(victim, data, cut):
    good = predict_request("zoo", "string", x=["a"]).SerializeToString()
    raw = victim.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    for payload in (data, good[:cut] + data, good + data):
        try:
            raw(payload, 60)
        except grpc.RpcError as error:
            assert error.code().name in ("INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


def test_sigterm_finishes_what_runs_and_ends_with_status_0(victim, held_run):
    """Last: it ends the process, which by now has had every chance to go by itself."""
    for port in (victim.port, victim.rest_port):
        assert {address for address, _ in sockets(port, LISTENING)} == {"127.0.0.1"}
    call = victim.stub.Predict.future(predict_request("held", text=[str(held_run.folder)]), 120)
    held_run.wait_until_it_runs()
    os.kill(victim.process.pid, signal.SIGTERM)
    wait_until(lambda: is_refused(victim.rest_port))
    assert victim.process.runs() and not call.done()
    held_run.finish()
    assert list(call.result().outputs["embedding"].float_val) == [1.0, 1.0]
    ended = victim.process.wait()
    assert ended.returncode == 0
    assert ended.stdout.startswith("unknown argument: --bogus=1\nusage: ")
    entry = json.loads(victim.log.read_text().splitlines()[-1])
    assert (entry["call"], entry["model"], entry["status"]) == ("Predict", "held", "OK")
