"""A model server without a model, whose answers tell which texts they are of, and gateways in front of it."""

import contextlib
import functools
import socket
import threading
import time
import zlib
from types import SimpleNamespace

import grpc
import httpx
import numpy as np
import pytest

from serving.benchmark.stand_in import StandIn
from serving.client import Connection
from serving.gateway.server import GatewayServer
from serving.gateway.service import Options
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor

STRINGS, PAIR = {"text": (7, 1)}, {"first": (7, 1), "second": (7, 1)}
PIECES = {"input_ids": (3, 2), "lengths": (3, 1), "pieces": (7, 2), "segment_ids": (3, 2)}
CLASSES = {"label": (7, 1), "logits": (1, 2), "probabilities": (1, 2)}
LABELS = [b"dull", b"fine"]
SIZE = 6
LONGEST = 16
SIGNATURES = {
    "embedder": {"serving_default": (STRINGS, {"embedding": (1, 2)}), "tokenize": (STRINGS, PIECES)},
    "classifier": {
        "serving_default": (STRINGS, CLASSES),
        "tokenize": (STRINGS, PIECES),
        "classify": ({"inputs": (7, 1)}, {"classes": (7, 2), "scores": (1, 2)}),
    },
    "cross-encoder": {"serving_default": (PAIR, CLASSES), "tokenize": (PAIR, PIECES)},
    "regressor": {"serving_default": (PAIR, {"value": (1, 1)}), "tokenize": (PAIR, PIECES)},
    "bare": {"serving_default": (STRINGS, {"embedding": (1, 2)})},
}


def vector(text: bytes) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(text)).normal(size=SIZE).astype(np.float32)


def logits(texts) -> np.ndarray:
    return vector(b"|".join(texts))[:2]


def tokens(texts) -> list[bytes]:
    words = [word for text in texts for word in [*text.split(), b"[SEP]"]]
    return [b"[CLS]", *words[: LONGEST - 2], b"[SEP]"] if len(words) > LONGEST - 1 else [b"[CLS]", *words]


class FakeModel:
    """Answers Predict, notes what it was asked, waits or fails when it is told to."""

    def __init__(self):
        self.batches, self.metadata = [], []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)
        self.failure = None
        self.refuses = None

    def __call__(self, request: bytes, context) -> bytes:
        asked = protos.PredictRequest.FromString(request)
        columns = [read_tensor(asked.inputs[name]).tolist() for name in sorted(asked.inputs)]
        rows, name = list(zip(*columns)), asked.model_spec.signature_name
        self.metadata.append(dict(context.invocation_metadata()))
        if name == "serving_default":
            self.batches.append([[text.decode() for text in row] for row in rows])
            self.asked.release()
            assert self.open.wait(30)
        if self.failure:
            context.abort(*self.failure)
        if self.refuses and any(self.refuses in text for row in rows for text in row):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no {self.refuses}\nat all")
        answer = protos.PredictResponse()
        for output, value in self.outputs(name, rows).items():
            if not asked.output_filter or output in asked.output_filter:
                fill_tensor(answer.outputs[output], value)
        return answer.SerializeToString()

    def outputs(self, signature, rows):
        if signature == "tokenize":
            pieces = [tokens(row) for row in rows]
            width = max(map(len, pieces))
            ids = [[2 if p == b"[CLS]" else 3 if p == b"[SEP]" else 100 + len(p) for p in row] for row in pieces]
            return {
                "input_ids": np.array([row + [0] * (width - len(row)) for row in ids], np.int32),
                "lengths": np.array(list(map(len, pieces)), np.int32),
                "pieces": np.array([row + [b""] * (width - len(row)) for row in pieces], object),
            }
        if signature == "classify":
            return {"classes": np.array([LABELS] * len(rows), object)}
        scores = np.array([logits(row) for row in rows], np.float32)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return {
            "embedding": np.array([vector(b"|".join(row)) for row in rows], np.float32),
            "label": np.array([LABELS[int(row.argmax())] for row in scores], object),
            "logits": scores,
            "probabilities": shares,
            "value": scores[:, 0],
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def wait_until(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


def start_gateway(stack: contextlib.ExitStack, target: str, live: bool = True, **options) -> SimpleNamespace:
    """A gateway on a thread, until the stack ends: its `url`, `service` and an HTTP client."""
    known = {"connection": Connection(target, attempts=1), "models": ("default",), "check_s": 0.2}
    server = GatewayServer(Options(**known | options), "127.0.0.1", 0, 1.0)
    server.start()
    stack.callback(server.stop)
    url = f"http://127.0.0.1:{server.port}"
    wait_until(lambda: server.gateway.service is not None and (server.gateway.service.live or not live))
    http = stack.enter_context(httpx.Client(base_url=url, timeout=30))
    return SimpleNamespace(url=url, http=http, service=server.gateway.service, server=server)


@pytest.fixture
def gateway_to():
    """gateway_to(target, live=True, **options), as `start_gateway`."""
    with contextlib.ExitStack() as stack:
        yield functools.partial(start_gateway, stack)


@pytest.fixture
def fake_server():
    """fake_server(kind, port=0): a fake model of that kind behind a port; gives both."""
    with contextlib.ExitStack() as stack:

        def make(kind: str, port: int = 0) -> tuple[FakeModel, StandIn]:
            model = FakeModel()
            stand_in = stack.enter_context(StandIn(model, signatures=SIGNATURES[kind], threads=16, port=port))
            stack.callback(model.open.set)
            return model, stand_in

        yield make


@pytest.fixture(scope="module")
def shared_gateway():
    """shared_gateway(kind): a gateway in front of a fake `model` of that kind, one for all tests of a file."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def make(kind: str) -> SimpleNamespace:
            model = FakeModel()
            stand_in = stack.enter_context(StandIn(model, signatures=SIGNATURES[kind], threads=8))
            gateway = start_gateway(stack, stand_in.target)
            gateway.model = model
            return gateway

        yield make
