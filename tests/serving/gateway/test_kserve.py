"""KServe's protocol, version 2: tensors as JSON, as bytes behind JSON, and over gRPC; what is wrong is named."""

import json
import string
import struct

import grpc
import numpy as np
import pytest
from google.protobuf import text_format

from serving.gateway.keys import Keys
from serving.wire import protos
from tests.serving.gateway.conftest import vector

INFER = "/v2/models/default/infer"
TEXT = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "bé"]}
EXPECTED = np.array([vector(b"a"), vector("bé".encode())])


def infer(gateway, *tensors, tail=b"", path=INFER, **more):
    body = json.dumps({"inputs": tensors or [TEXT], "outputs": [{"name": "embedding"}]} | more).encode()
    headers = {"Inference-Header-Content-Length": str(len(body))} if tail else {}
    return gateway.http.post(path, content=body + tail, headers=headers)


def test_tensors_pass_as_json(shared_gateway):
    answer = infer(shared_gateway("embedder"), id="x").json()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("default", "1", "x")
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("embedding", "FP32", [2, 6])
    np.testing.assert_array_equal(np.reshape(output["data"], [2, 6]).astype("float32"), EXPECTED)
    nested = infer(shared_gateway("embedder"), TEXT | {"shape": [2], "data": [["a"], ["bé"]]}).json()
    assert nested["outputs"] == answer["outputs"]
    versioned = infer(shared_gateway("embedder"), path="/v2/models/default/versions/1/infer")
    assert versioned.json()["outputs"] == answer["outputs"]


def test_tensors_pass_as_bytes(shared_gateway):
    packed = b"".join(struct.pack("<I", len(one)) + one for one in (b"a", "bé".encode()))
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(packed)}}
    output = {"name": "embedding", "parameters": {"binary_data": True}}
    for asked in ({"outputs": [output]}, {"parameters": {"binary_data_output": True}}):
        answer = infer(shared_gateway("embedder"), tensor, tail=packed, **asked)
        size = int(answer.headers["inference-header-content-length"])
        (said,) = json.loads(answer.content[:size])["outputs"]
        assert (
            said["parameters"] == {"binary_data_size": 48}
            and answer.headers["content-type"] == "application/octet-stream"
        )
        np.testing.assert_array_equal(np.frombuffer(answer.content[size:], "float32").reshape(2, 6), EXPECTED)


def test_signatures_and_outputs_are_chosen(shared_gateway):
    answer = infer(
        shared_gateway("embedder"),
        parameters={"signature_name": "tokenize"},
        outputs=[{"name": "lengths"}, {"name": "pieces"}],
    ).json()["outputs"]
    assert [one["name"] for one in answer] == ["lengths", "pieces"]
    assert answer[0]["datatype"] == "INT32" and answer[0]["data"] == [3, 3]
    assert answer[1]["datatype"] == "BYTES" and answer[1]["data"] == ["[CLS]", "a", "[SEP]", "[CLS]", "bé", "[SEP]"]


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "3.5", "99999", "\u00b2", "0"])
def test_a_length_that_is_none_is_refused(shared_gateway, length):
    headers = {"Inference-Header-Content-Length": length.encode("latin-1")}
    answer = shared_gateway("embedder").http.post(INFER, json={"inputs": [TEXT]}, headers=headers)
    assert answer.status_code == 400 and answer.json()["error"]


def test_bytes_that_belong_to_no_input_and_too_many_inputs_are_refused(shared_gateway):
    answer = infer(shared_gateway("embedder"), tail=b"abc")
    assert (answer.status_code, answer.json()["error"]) == (400, "the last 3 bytes of the body belong to no input")
    answer = infer(shared_gateway("embedder"), TEXT | {"shape": [2049], "data": ["a"] * 2049})
    assert "2049 inputs are more than the 2048 of one request" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v2/models/default/config", "/v2/chat", "/v1/nowhere", "/nowhere"])
def test_a_path_that_is_none_says_so_as_its_clients_read_it(shared_gateway, path):
    answer, message = shared_gateway("embedder").http.get(path), "there is no such route; /docs lists them"
    said = answer.json()
    assert answer.status_code == 404
    assert message == (said["error"]["message"] if path == "/v1/nowhere" else said["error"])
    assert path == "/nowhere" or said["message"] == message


@pytest.fixture
def calls(fake_server, gateway_to):
    """calls(method, authorization="", given=None, **fields): a method of the gateway's gRPC service, with keys."""
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, grpc_address="127.0.0.1:0", keys=Keys(["alpha"]))
    with grpc.insecure_channel(f"127.0.0.1:{gateway.server.gateway.grpc_port}") as channel:

        def call(method, authorization="Bearer alpha", given=None, **fields):
            request, answer = protos.KSERVE_METHODS[method]
            path = f"/inference.GRPCInferenceService/{method}"
            stub = channel.unary_unary(path, request.SerializeToString, answer.FromString)
            return stub(given or request(**fields), timeout=20, metadata=[("authorization", authorization)])

        call.model = model
        yield call


def test_the_service_answers_over_grpc(calls):
    assert calls("ServerLive", authorization="").live and calls("ServerReady", authorization="").ready
    assert calls("ServerMetadata", authorization="").name == "albert-tf gateway"
    assert calls("ModelReady", name="default").ready and calls("ModelReady", name="default", version="1").ready
    assert not calls("ModelReady", name="other").ready and not calls("ModelReady", name="default", version="7").ready
    described = calls("ModelMetadata", name="default")
    assert [(one.name, one.datatype, list(one.shape)) for one in described.inputs] == [("text", "BYTES", [-1])]
    packed = b"".join(struct.pack("<I", len(one)) + one for one in (b"a", "bé".encode()))
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES"}
    contents = {"contents": {"bytes_contents": [b"a", "bé".encode()]}}
    for fields in ({"inputs": [tensor], "raw_input_contents": [packed]}, {"inputs": [tensor | contents]}):
        answer = calls("ModelInfer", model_name="default", id="x", outputs=[{"name": "embedding"}], **fields)
        assert (answer.model_name, answer.model_version, answer.id) == ("default", "1", "x")
        (output,), (raw,) = answer.outputs, answer.raw_output_contents
        assert (output.name, output.datatype, list(output.shape)) == ("embedding", "FP32", [2, 6])
        np.testing.assert_array_equal(np.frombuffer(raw, "float32").reshape(2, 6), EXPECTED)


# Code, request as text, and sentence; $text is an input without its shape and its end.
FAILURES = string.Template("""
NOT_FOUND | model_name: "other" $text shape: 1 } | the model 'other' does not exist
INVALID_ARGUMENT | model_name: "default" $text shape: 1 } raw_input_contents: ["",""] | 2 raw_input_contents for 1 input
INVALID_ARGUMENT | model_name: "default" $text shape: 1 } raw_input_contents: "" | has raw_input_contents, too; give one
INVALID_ARGUMENT | model_name: "default" $text shape: 1 } $text shape: 1 } | the input 'text' is given 2 times
INVALID_ARGUMENT | model_name: "default" $text shape: -1 } | sizes must be from 0 on
INVALID_ARGUMENT | model_name: "default" $text shape: 1 \
parameters { key: "shared_memory_region" value { string_param: "r" } } } | 'shared_memory_region' is not known
INVALID_ARGUMENT | model_name: "default" $text shape: 1 } outputs { name: "embedding" \
parameters { key: "classification" value { int64_param: 2 } } } | 'classification' is not known
INTERNAL | model_name: "default" $text shape: 1 } | gave NaN or infinity (embedding)
UNAUTHENTICATED | model_name: "default" | no key that is known here
""").substitute(text='inputs { name: "text" datatype: "BYTES" contents { bytes_contents: "a" }')


def test_failures_over_grpc_have_their_codes(calls):
    usual = calls.model.outputs
    calls.model.outputs = lambda *inputs: {
        name: values * np.float32("nan") for name, values in usual(*inputs).items() if name == "embedding"
    }
    for line in FAILURES.strip().splitlines():
        code, request, message = line.split(" | ")
        with pytest.raises(grpc.RpcError) as failed:
            key = "beta" if code == "UNAUTHENTICATED" else "alpha"
            calls("ModelInfer", f"Bearer {key}", text_format.Parse(request, protos.KSERVE_METHODS["ModelInfer"][0]()))
        assert failed.value.code().name == code and message in failed.value.details()
