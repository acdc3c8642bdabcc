"""A model server without a model, whose answers tell which texts they are of, and gateways in front of it."""

import contextlib
import functools
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
from serving.gateway.routes import ROUTES
from serving.gateway.server import GatewayServer
from serving.gateway.service import Options
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor

STRINGS, PAIR = {"text": (7, 1)}, {"first": (7, 1), "second": (7, 1)}
PIECES = {"input_ids": (3, 2), "lengths": (3, 1), "pieces": (7, 2), "segment_ids": (3, 2)}
TOLD = {"text_tokens": (3, 1), "truncated_tokens": (3, 1)}
CLASSES = {"label": (7, 1), "logits": (1, 2), "probabilities": (1, 2)}
SPANS = {
    "answer": (7, 1), "start": (3, 1), "end": (3, 1), "score": (1, 1), "no_answer_score": (1, 1),
    "answers": (7, 2), "starts": (3, 2), "ends": (3, 2), "scores": (1, 2), "probabilities": (1, 2),
}  # fmt: skip
WORDS = {"labels": (7, 2), "words": (7, 2), "starts": (3, 2), "ends": (3, 2), "probabilities": (1, 3)}
# The steps of those that leave early.
STEPS = 12
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
    "pretrainer": {
        "serving_default": (STRINGS, {"embedding": (1, 2)}),
        "early_exit": (STRINGS | {"threshold": (1, 1)}, {"embedding": (1, 2), "steps": (3, 1)}),
        "fill_mask": (STRINGS, {"pieces": (7, 3), "probabilities": (1, 3)}),
        "sentence_order": (PAIR, {"probabilities": (1, 2)}),
        "sparse": (STRINGS, {"ids": (3, 2), "terms": (7, 2), "weights": (1, 2)}),
        "tokenize": (STRINGS, PIECES),
    },
    "exiting classifier": {
        "serving_default": (STRINGS, CLASSES),
        "early_exit": (STRINGS | {"threshold": (1, 1)}, CLASSES | {"steps": (3, 1)}),
    },
    "spans": {"serving_default": ({"context": (7, 1), "question": (7, 1)}, SPANS), "tokenize": (STRINGS, PIECES)},
    "tagger": {"serving_default": (STRINGS, WORDS), "tokenize": (STRINGS, PIECES)},
    # As exports of today: they tell what they cut, but never next to a single output.
    "telling classifier": {"serving_default": (STRINGS, CLASSES | TOLD), "tokenize": (STRINGS, PIECES | TOLD)},
    "telling regressor": {"serving_default": (PAIR, {"value": (1, 1)}), "tokenize": (PAIR, PIECES | TOLD)},
    "telling embedder": {"serving_default": (STRINGS, {"embedding": (1, 2)}), "tokenize": (STRINGS, PIECES | TOLD)},
    "cls last": {"serving_default": (STRINGS, {"embedding": (1, 2)}), "tokenize": (STRINGS, PIECES)},
    "bare": {"serving_default": (STRINGS, {"embedding": (1, 2)})},
}


def vector(text: bytes) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(text)).normal(size=SIZE).astype(np.float32)


def logits(texts) -> np.ndarray:
    return vector(b"|".join(texts))[:2]


def tokens(texts) -> list[bytes]:
    words = [word for text in texts for word in [*text.split(), b"[SEP]"]]
    return [b"[CLS]", *words[: LONGEST - 2], b"[SEP]"] if len(words) > LONGEST - 1 else [b"[CLS]", *words]


def truncation(rows) -> dict[str, np.ndarray]:
    sizes = np.array([sum(len(text.split()) for text in row) for row in rows], np.int32)
    room = np.array([LONGEST - 1 - len(row) for row in rows], np.int32)
    return {"text_tokens": sizes, "truncated_tokens": np.maximum(sizes - room, 0)}


class FakeModel:
    """Answers Predict, notes what it was asked, waits or fails when it is told to."""

    def __init__(self, kind: str):
        self.kind = kind
        self.batches, self.metadata = [], []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)
        self.failure = None
        self.refuses = None
        # Whether the last axis of every answer is turned round.
        self.reverses = False
        # Outputs that it does not have, whatever its metadata says, as an older version behind the same name.
        self.lacks = frozenset()
        # By (model, signature): an event that its answers wait for.
        self.gates = {}
        # Names of models that the server has not loaded.
        self.absent = set()

    def __call__(self, request: bytes, context) -> bytes:
        asked = protos.PredictRequest.FromString(request)
        columns = [read_tensor(asked.inputs[name]).tolist() for name in sorted(asked.inputs)]
        name = asked.model_spec.signature_name
        threshold = columns.pop(sorted(asked.inputs).index("threshold")) if "threshold" in asked.inputs else None
        rows = list(zip(*columns))
        self.metadata.append(dict(context.invocation_metadata()))
        if name == "serving_default":
            self.batches.append([[text.decode() for text in row] for row in rows])
            self.asked.release()
            assert self.open.wait(30)
        gate = self.gates.get((asked.model_spec.name, name))
        assert gate is None or gate.wait(30)
        if asked.model_spec.name in self.absent:
            context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request")
        if self.failure:
            context.abort(*self.failure)
        for output in self.lacks.intersection(asked.output_filter):
            message = f"output tensor alias not found in signature: {output} Outputs expected to be in the set {{}}."
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        if self.refuses and any(self.refuses in text for row in rows for text in row):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no {self.refuses}\nat all")
        answer = protos.PredictResponse()
        for output, value in self.outputs(name, rows, threshold).items():
            if not asked.output_filter or output in asked.output_filter:
                fill_tensor(answer.outputs[output], value[..., ::-1] if self.reverses and value.ndim > 1 else value)
        return answer.SerializeToString()

    def outputs(self, signature, rows, threshold=None):
        if signature == "tokenize":
            pieces = [tokens(row) for row in rows]
            if self.kind == "cls last":
                pieces = [[*row, cls] for cls, *row in pieces]
            width = max(map(len, pieces))
            ids = [[2 if p == b"[CLS]" else 3 if p == b"[SEP]" else 100 + len(p) for p in row] for row in pieces]
            return {
                "input_ids": np.array([row + [0] * (width - len(row)) for row in ids], np.int32),
                "lengths": np.array(list(map(len, pieces)), np.int32),
                "pieces": np.array([row + [b""] * (width - len(row)) for row in pieces], object),
                **truncation(rows),
            }
        if signature == "classify":
            return {"classes": np.array([LABELS] * len(rows), object)}
        if signature == "fill_mask":
            masks = [row[0].count(b"[MASK]") for row in rows]
            present = np.arange(max(masks))[None, :, None] < np.array(masks)[:, None, None]
            pieces = np.where(present, np.array([b"mat", b"dog"], object), b"")
            return {"pieces": pieces, "probabilities": np.where(present, np.array([0.7, 0.2], np.float32), 0)}
        if signature == "sparse":
            ids = np.array([[5, 9, 0]] * len(rows), np.int32)
            terms = np.array([[b"fine", b"film", b""]] * len(rows), object)
            return {"ids": ids, "terms": terms, "weights": np.array([[1.5, 0.25, 0.0]] * len(rows), np.float32)}
        if signature == "sentence_order":
            return {"probabilities": np.array([[0.75, 0.25]] * len(rows), np.float32)}
        if self.kind == "spans":
            return self.spans(rows)
        if self.kind == "tagger":
            return self.words([text for (text,) in rows])
        scores = np.array([logits(row) for row in rows], np.float32)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return {
            "steps": np.clip(np.array(threshold or [0.0] * len(rows)) * STEPS, 1, STEPS).astype(np.int32),
            "embedding": np.array([vector(b"|".join(row)) for row in rows], np.float32),
            "label": np.array([LABELS[int(row.argmax())] for row in scores], object),
            "logits": scores,
            "probabilities": shares,
            "value": scores[:, 0],
            **truncation(rows),
        }

    @staticmethod
    def spans(rows):
        """The context's first word answers every question, its second is the next best."""
        words = [[*context.split()[:2], b"", b""][:2] for context, _ in rows]
        answers, ends = np.array(words, object), np.array([[len(w.decode()) for w in row] for row in words], np.int32)
        return {
            "answer": answers[:, 0], "answers": answers, "start": ends[:, 0] * 0, "starts": ends * 0, "end": ends[:, 0],
            # As exports of before where there is none.
            "ends": ends, "score": np.where(ends[:, 0], ends[:, 0] / 2, -1e30), "scores": ends / 2,
            "no_answer_score": np.where(ends[:, 0], ends[:, 0] / -4, 1e30),
            "probabilities": ends / np.maximum(ends.sum(1, keepdims=True), 1),
        }  # fmt: skip

    @staticmethod
    def words(texts):
        """Every second word is a thing; from the fifth on they are cut off."""
        rows = [text.split() for text in texts]
        width = max(1, *map(len, rows))
        padded = [row + [b""] * (width - len(row)) for row in rows]
        labels = [[b"" if not word or n > 4 else (b"O", b"THING")[n % 2] for n, word in enumerate(r)] for r in padded]
        starts = [[len(b" ".join(row[:n]).decode()) + (n > 0) for n in range(width)] for row in padded]
        sizes = [[len(word.decode()) for word in row] for row in padded]
        return {
            "labels": np.array(labels, object), "words": np.array(padded, object),
            "starts": np.array(starts, np.int32), "ends": np.array(starts, np.int32) + np.array(sizes, np.int32),
            "probabilities": np.full([len(rows), width, 2], 0.5, np.float32),
        }  # fmt: skip


# Of which kind a model is that can do what a route needs.
KINDS = {
    "classify": "classifier", "rerank": "cross-encoder", "answer": "spans", "tag": "tagger",
    "fill_mask": "pretrainer", "sentence_order": "pretrainer", "embed_sparse": "pretrainer", "early_exit": "pretrainer",
}  # fmt: skip


def failure_of(answer: httpx.Response, path: str) -> str:
    """The sentence of an error, which has the form that the route's clients read."""
    read = answer.json()
    family = {route.path: route.family for route in ROUTES}.get(path)
    if family == "cohere":
        assert read.keys() == {"message"}
        return read["message"]
    if family == "tei" or (family is None and read.keys() == {"error", "error_type"}):
        assert read["error_type"] and read.keys() == {"error", "error_type"}
        return read["error"]
    error = read["error"]
    assert error["type"] == ("invalid_request_error" if answer.status_code < 500 else "server_error") and error["code"]
    return error["message"]


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
    # Without certificates, which are not asked for here and take 40 ms to read.
    http = stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=False))
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
            model = FakeModel(kind)
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
            model = FakeModel(kind)
            stand_in = stack.enter_context(StandIn(model, signatures=SIGNATURES[kind], threads=8))
            gateway = start_gateway(stack, stand_in.target)
            gateway.model = model
            return gateway

        yield make
