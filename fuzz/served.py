"""Targets that read what clients and operators send to the servers: tensors, JSON bodies and text protos."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.client import Connection
from serving.gateway.app import Gateway
from serving.gateway.routes.table import ROUTES
from serving.gateway.settings import GatewayOptions
from serving.model_server import batching, configuration, json_request
from serving.model_server.status import StatusError
from serving.wire.protos import BatchingParameters, MonitoringConfig, PredictRequest, SSLConfig, TensorProto
from serving.wire.tensors import checked_shape, read_tensor, to_numpy
from tests.serving.gateway.conftest import SIGNATURES, FakeModel
from tests.stand_in import StandIn

STATUS = (StatusError,)
REST_WORDS = ("instances", "inputs", "examples", "context", "signature_name", "b64", "x", "y", "z", "flag", "half")
_KINDS = {
    "x": types_pb2.DT_FLOAT, "y": types_pb2.DT_STRING, "z": types_pb2.DT_INT64, "flag": types_pb2.DT_BOOL,
    "half": types_pb2.DT_HALF, "narrow": types_pb2.DT_INT8, "wide": types_pb2.DT_UINT64,
}  # fmt: skip


def tensors(folder: Path):
    """A TensorProto."""

    def check(data: bytes) -> None:
        try:
            tensor = TensorProto.FromString(data)
        except DecodeError:
            return
        array = to_numpy(tensor)
        assert array.shape == checked_shape(tensor), "not of the shape that the message says"
        read_tensor(tensor)
        # Every element is read: one outside of the message's memory would be found.
        array.tolist()

    return check


def rest(folder: Path):
    """The first byte says of which inputs the model is, the others are the body of predict or classify."""
    infos = {name: meta_graph_pb2.TensorInfo(dtype=kind) for name, kind in _KINDS.items()}

    def check(data: bytes) -> None:
        kind, body = data[:1], data[1:]
        document = json_request.parse_object(body)
        json_request.signature_name(document)
        if kind == b"e":
            json_request.examples_input(document)
            return
        chosen = [name for place, name in enumerate(infos) if (kind or b"\0")[0] >> place & 1] or ["x"]
        arrays, _ = json_request.predict_inputs(document, {name: infos[name] for name in chosen})
        assert arrays.keys() == set(chosen) and all(isinstance(array, np.ndarray) for array in arrays.values())

    return check


def text_protos(folder: Path):
    """The first byte chooses the file of the embedded server that the others are."""
    path = folder / "text"
    kinds = (ModelServerConfig, BatchingParameters, SSLConfig, MonitoringConfig, config_pb2.ConfigProto)

    def check(data: bytes) -> None:
        if not data:
            return
        path.write_bytes(data[1:])
        message = configuration.read_text_proto(str(path), kinds[data[0] % len(kinds)]())
        if isinstance(message, ModelServerConfig):
            models = configuration.checked_models(message, {})
            configuration.checked_models(message, models)
            configuration.checked_labels(models, {}, lambda name: [], allow_new=bool(len(data) % 2))
        elif isinstance(message, BatchingParameters):
            batching.BatchingOptions(message).check()

    return check


_PATHS = tuple(route.path for route in ROUTES)
_MODELS = ("embedder of tokens", "classifier", "cross-encoder", "spans", "tagger", "pretrainer", "prompted embedder")
GATEWAY_WORDS = tuple(
    sorted({name for route in ROUTES for name in (*route.body.__struct_fields__, *route.example)})
) + (*("text", "source_sentence", "sentences", "question", "context", "default"),)


def gateway(folder: Path):
    """The first byte chooses the route, the others are the body; a model that answers like the real ones is behind."""
    loop, stack = asyncio.new_event_loop(), contextlib.ExitStack()
    gateways = [loop.run_until_complete(_started(stack, kind)) for kind in _MODELS]

    def check(data: bytes) -> None:
        path = _PATHS[(data or b"\0")[0] % len(_PATHS)]
        for one in gateways:
            status, body = loop.run_until_complete(_ask(one, path, data[1:]))
            assert status in (200, 400, 404, 413), f"{path} answers {status}: {body[:200]!r}"
            assert body and b"Traceback" not in body

    return check


class _Model(FakeModel):
    """Refuses tensors of other ranks than its signatures', as a graph does."""

    def __call__(self, request, context):
        asked = PredictRequest.FromString(request)
        inputs, _ = SIGNATURES[self.kind][asked.model_spec.signature_name or "serving_default"]
        shapes = {name: [dim.size for dim in asked.inputs[name].tensor_shape.dim] for name in inputs}
        if any(len(shapes[name]) != rank for name, (_, rank) in inputs.items()):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"shapes {shapes}")
        return super().__call__(request, context)


_LIVES: list[asyncio.Task] = []


async def _started(stack: contextlib.ExitStack, kind: str) -> Gateway:
    model = stack.enter_context(StandIn(_Model(kind), signatures=SIGNATURES[kind], threads=4))
    one = Gateway(Connection(model.target, attempts=1), ("default",), options=GatewayOptions(check_s=3600.0))
    begin = [{"type": "lifespan.startup"}]

    async def receive():
        return begin.pop() if begin else await asyncio.get_running_loop().create_future()

    async def send(message):
        pass

    # It lives as long as the process.
    _LIVES.append(asyncio.create_task(one.asgi({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)))
    while one.service is None:
        await asyncio.sleep(0.01)
    while not one.service.live:
        await asyncio.sleep(0.01)
    return one


async def _ask(one: Gateway, path: str, body: bytes) -> tuple[int, bytes]:
    """Returns status and body of the answer to a POST."""
    messages, sent = [{"type": "http.request", "body": body}], []
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"content-length", b"%d" % len(body))],
        "scheme": "http", "root_path": "", "http_version": "1.1",
    }  # fmt: skip

    async def receive():
        if messages:
            return messages.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message):
        sent.append(message)

    await one.asgi(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]
