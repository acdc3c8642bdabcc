"""Predict over gRPC: what a client may send, and the exact answers to what it may not."""

import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.wire.tensors import named_tensors


def request(model="default", signature="", output_filter=(), **inputs):
    result = predict_pb2.PredictRequest(output_filter=output_filter)
    result.model_spec.name = model
    result.model_spec.signature_name = signature
    for name, value in inputs.items():
        result.inputs[name].CopyFrom(value if not isinstance(value, (list, float)) else tf.make_tensor_proto(value))
    return result


def test_answers_and_names_what_served_it(server):
    response = server.predictions.Predict(request(x=[[2.0], [3.0]]))
    assert list(response.outputs["y"].float_val) == [3.0, 3.5]
    assert [d.size for d in response.outputs["y"].tensor_shape.dim] == [2, 1]
    assert response.model_spec.name == "default"
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == "serving_default"
    assert not response.outputs["y"].tensor_content


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4), (0, 1)])
def test_shapes_are_not_checked_against_the_signature(server, shape):
    value = tf.make_tensor_proto(np.full(shape, 2.0, np.float32))
    output = server.predictions.Predict(request(x=value)).outputs["y"]
    np.testing.assert_array_equal(tf.make_ndarray(output), np.full(shape, 3.0, np.float32))


def test_list_shorter_than_shape_repeats_its_last_value(server):
    value = tf.make_tensor_proto([1.0], tf.float32, [1, 1])
    value.tensor_shape.dim[0].size = 3
    assert list(server.predictions.Predict(request(x=value)).outputs["y"].float_val) == [2.5] * 3


def test_specific_version(server):
    assert server.predict(2.0, version=123) == [3.0]


def broken_tensor():
    value = tf.make_tensor_proto([[1.0]])
    value.tensor_content = b"abc"
    return value


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (request(""), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (request("nobody"), "NOT_FOUND", "Servable not found for request: Latest(nobody)"),
        (request(signature="S"), "FAILED_PRECONDITION", 'Serving signature key "S" not found.'),
        (
            request(),
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. Missing but required: {x}.",
        ),
        (
            request(x=[1.0], a=[1.0], b=[1.0]),
            "INVALID_ARGUMENT",
            "input size does not match signature: 3!=1 len({a,b,x}) != len({x}). Sent extra: {a,b}. "
            "Missing but required: {}.",
        ),
        (
            request(zz=[1.0]),
            "INVALID_ARGUMENT",
            "Signature input alias: x(feed name: x:0) not found in request and no default value provided. "
            "Inputs expected to be in the request {zz}, or default input alias set: ",
        ),
        (request(x=broken_tensor()), "INVALID_ARGUMENT", "tensor parsing error: x"),
        (
            request(output_filter=["zz"], x=[1.0]),
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: zz Outputs expected to be in the set {y}.",
        ),
        (
            request(output_filter=["y", "y"], x=[1.0]),
            "INVALID_ARGUMENT",
            "duplicate output tensor alias: y",
        ),
        (
            request(x=tf.make_tensor_proto([True])),
            "INVALID_ARGUMENT",
            "Expects arg[0] to be float but bool is provided",
        ),
        (
            request(x=tf.make_tensor_proto(["a"])),
            "INVALID_ARGUMENT",
            "Expects arg[0] to be float but string is provided",
        ),
    ],
)
def test_refusals(server, error_of, bad, code, message):
    assert error_of(server.predictions.Predict, bad) == (code, message)


def test_missing_version_and_label(server, error_of):
    missing = error_of(server.predict, 1.0, version=99)
    assert missing == ("NOT_FOUND", "Servable not found for request: Specific(default, 99)")
    unlabelled = error_of(server.predict, 1.0, label="L")
    assert unlabelled == ("INVALID_ARGUMENT", "Unrecognized servable version label: L")


def test_shape_bomb_is_refused_without_allocating(server, error_of):
    value = tf.make_tensor_proto([1.0], tf.float32, [1])
    value.tensor_shape.dim[0].size = 1 << 40
    assert error_of(server.predictions.Predict, request(x=value)) == ("INVALID_ARGUMENT", "tensor parsing error: x")


def test_garbage_on_the_wire_is_an_error_not_a_crash(server, error_of):
    raw = server.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    code, _ = error_of(raw, b"\xff\xff\xff\xff")
    assert code == "INTERNAL"
    assert server.predict(2.0) == [3.0]


def test_long_messages_are_cut(server, error_of):
    _, message = error_of(server.predictions.Predict, request(signature="s" * 5000, x=[1.0]))
    assert message.endswith("...TRUNCATED")
    assert len(message) == 1024 + len("...TRUNCATED")


def test_tensor_content_on_request(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two), enable_serialization_as_tensor_content=True)
    output = running.predictions.Predict(request(x=[[2.0]])).outputs["y"]
    assert output.tensor_content == np.float32(3.0).tobytes()
    assert not output.float_val


def test_method_name_check_is_off_unless_asked_for(start_server, build, tmp_path, error_of):
    folder = build.half_plus_two(tmp_path / "m" / "1")
    path = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    saved_model.meta_graphs[0].signature_def["serving_default"].method_name = "my/method"
    path.write_bytes(saved_model.SerializeToString())
    lenient = start_server(model_base_path=str(tmp_path / "m"))
    assert lenient.predict(2.0) == [3.0]
    strict = start_server(model_base_path=str(tmp_path / "m"), enable_signature_method_name_check=True)
    code, message = error_of(strict.predict, 2.0)
    assert code == "INVALID_ARGUMENT"
    assert "my/method" in message


def test_every_dtype_comes_back_as_it_went(start_server, build, tmp_path):
    dtypes = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16",
              "uint32", "uint64", "bool", "complex64", "complex128", "string"]  # fmt: skip
    functions = {
        name: tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[tf.TensorSpec(None, tf.as_dtype(name))])
        for name in dtypes
    }
    build.function(tmp_path / "m" / "1", **functions)
    running = start_server(model_base_path=str(tmp_path / "m"))
    for name in dtypes:
        values = [[b"\xff\x00", b"", b"ab"]] if name == "string" else tf.cast([[1, 0, 3]], tf.as_dtype(name)).numpy()
        value = tf.make_tensor_proto(values, tf.as_dtype(name))
        for proto in (value, as_list_fields(value)):
            output = running.predictions.Predict(request(signature=name, x=proto)).outputs["y"]
            assert output.dtype == value.dtype, name
            np.testing.assert_array_equal(tf.make_ndarray(output), tf.make_ndarray(value), name)


def as_list_fields(proto):
    """The same tensor through the server's own writer, so both of its readers are met."""
    written = named_tensors(1, {"y": tf.make_ndarray(proto)}, other=tf.make_tensor_proto)
    return predict_pb2.PredictResponse.FromString(written).outputs["y"]


def test_signature_without_inputs_and_with_several_outputs(start_server, build, tmp_path):
    constant = tf.function(lambda: {"a": tf.constant([1.0]), "b": tf.constant([2, 3])}, input_signature=[])
    build.function(tmp_path / "m" / "1", serving_default=constant)
    running = start_server(model_base_path=str(tmp_path / "m"))
    assert sorted(running.predictions.Predict(request()).outputs) == ["a", "b"]
    assert list(running.predictions.Predict(request(output_filter=["b"])).outputs) == ["b"]


def test_defaults_of_a_signature_fill_in_for_inputs_left_out(start_server, build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "p"), tf.TensorSpec([], tf.float32, "q")])
    def add(p, q):
        return {"y": p + q}

    folder = build.function(tmp_path / "m" / "1", serving_default=add)
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    signature = saved_model.meta_graphs[0].signature_def["serving_default"]
    signature.defaults["q"].CopyFrom(tf.make_tensor_proto(10.0))
    (folder / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    running = start_server(model_base_path=str(tmp_path / "m"))
    assert list(running.predictions.Predict(request(p=1.0)).outputs["y"].float_val) == [11.0]
    assert list(running.predictions.Predict(request(p=1.0, q=2.0)).outputs["y"].float_val) == [3.0]


def test_deadline_stops_the_run(start_server, build, tmp_path, error_of):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def slow(x):
        return {"y": tf.while_loop(lambda i, v: i < 10**9, lambda i, v: (i + 1, v + 1.0), (0, x))[1]}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    running = start_server(model_base_path=str(tmp_path / "m"), grpc_max_threads=1)
    for _ in range(2):
        code, _ = error_of(running.predictions.Predict, request(x=1.0), timeout=0.3)
        # The only thread is free again because the server stopped running the graph.
        assert code in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
    time.sleep(0.5)
    code, message = error_of(running.predictions.Predict, request("nobody"), timeout=5)
    assert (code, message) == ("NOT_FOUND", "Servable not found for request: Latest(nobody)")


def test_one_request_too_many_is_refused(start_server, build, tmp_path, error_of):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def slow(x):
        return {"y": tf.while_loop(lambda i, v: i < 10**9, lambda i, v: (i + 1, v + 1.0), (0, x))[1]}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    running = start_server(model_base_path=str(tmp_path / "m"), grpc_max_threads=3)
    busy = [running.predictions.Predict.future(request(x=1.0), timeout=1) for _ in range(2)]
    for _ in range(100):
        code, message = error_of(running.predictions.Predict, request("nobody"), timeout=5)
        if code == "RESOURCE_EXHAUSTED":
            break
        time.sleep(0.02)
    assert (code, message) == ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted")
    for call in busy:
        assert call.exception().code().name == "DEADLINE_EXCEEDED"


def test_unix_socket(start_server, half_plus_two, tmp_path):
    for _ in range(2):
        # The second takes the name over from the first, as upstream's own tests expect.
        start_server(model_base_path=str(half_plus_two), port=0, grpc_socket_path=str(tmp_path / "s.sock"))
    with grpc.insecure_channel(f"unix:{tmp_path}/s.sock") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert list(stub.Predict(request(x=[2.0])).outputs["y"].float_val) == [3.0]


def test_signatures_of_unknown_shape_and_constant_outputs(start_server, tmp_path):
    """As TensorFlow Serving's own suite saves them: tf.saved_model.save of a tf.train.Checkpoint."""
    root = tf.train.Checkpoint(v1=tf.Variable(3.0), v2=tf.Variable(2.0))
    unknown = tf.TensorSpec(None, tf.float32, "x")
    root.f = tf.function(lambda x: {"y": root.v1 * root.v2 * x}, input_signature=[unknown])
    root.g = tf.function(lambda x: {"y": 2.0}, input_signature=[unknown])
    signatures = {"serving_default": root.f, "custom_signature_key": root.g}
    tf.saved_model.save(root, str(tmp_path / "m" / "00000123"), signatures)
    running = start_server(model_base_path=str(tmp_path / "m"))
    assert running.predict(2.0, shape=(1,)) == [12.0]
    response = running.predictions.Predict(request(signature="custom_signature_key", output_filter=["y"], x=[2.0]))
    assert list(response.outputs["y"].float_val) == [2.0]
    assert response.model_spec.signature_name == "custom_signature_key"
