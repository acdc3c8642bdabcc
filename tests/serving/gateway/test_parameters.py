"""KServe's parameters of single tensors, and paths that are none: refused in the form that its clients read."""

import contextlib

import grpc
import pytest

from serving.wire import protos
from tests.serving.gateway.conftest import SIGNATURES, FakeModel, StandIn, start_gateway

TEXT = {"name": "text", "shape": [1], "datatype": "BYTES"}
REFUSED = {
    "classes": ({}, {"classification": 2}, "classification"),
    "memory for the answer": ({}, {"shared_memory_region": "r", "shared_memory_offset": 9}, "shared_memory_offset"),
    "memory with the text": ({"shared_memory_region": "r"}, {}, "shared_memory_region"),
}


@pytest.fixture(scope="module")
def gateway():
    with contextlib.ExitStack() as stack:
        stand_in = stack.enter_context(StandIn(FakeModel("classifier"), signatures=SIGNATURES["classifier"], threads=8))
        yield start_gateway(stack, stand_in.target, grpc_address="127.0.0.1:0")


@pytest.mark.parametrize("name", REFUSED)
def test_a_parameter_of_a_tensor_that_is_not_known_is_refused(gateway, name):
    of_input, of_output, named = REFUSED[name]
    body = {
        "inputs": [TEXT | {"data": ["a"], "parameters": of_input}],
        "outputs": [{"name": "logits", "parameters": of_output}],
    }
    answer = gateway.http.post("/v2/models/default/infer", json=body)
    message = f"the parameter '{named}' is not known; leave it out"
    assert (answer.status_code, answer.json()["error"]) == (400, message)
    request = protos.KSERVE_METHODS["ModelInfer"][0](model_name="default")
    text = request.inputs.add(name="text", datatype="BYTES", shape=[1])
    text.contents.bytes_contents.append(b"a")
    output = request.outputs.add(name="logits")
    for tensor, parameters in ((text, of_input), (output, of_output)):
        for key, value in parameters.items():
            setattr(tensor.parameters[key], "string_param" if isinstance(value, str) else "int64_param", value)
    with grpc.insecure_channel(f"127.0.0.1:{gateway.server.gateway.grpc_port}") as channel:
        asked = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as failed:
            asked(request.SerializeToString(), timeout=30)
    assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, message)


PATHS = {"/v2/models/default/config": "v2", "/v2/repository/index": "v2", "/v2/chat": "v2", "/v1/nowhere": "openai"}


@pytest.mark.parametrize("path", [*PATHS, "/nowhere"])
def test_a_path_that_is_none_says_so_as_its_clients_read_it(gateway, path):
    answer, message = gateway.http.get(path), "there is no such route; /docs lists them"
    said = answer.json()
    assert answer.status_code == 404
    assert message == (said["error"]["message"] if PATHS.get(path) == "openai" else said["error"])
    assert path == "/nowhere" or said["message"] == message
