"""A model server without a model, whose answers tell which texts they are of, and gateways in front of it."""

import contextlib
import functools
import re
import threading
import time
import zlib
from types import SimpleNamespace

import grpc
import httpx
import numpy as np
import pytest

from serving.client import Connection
from serving.gateway.app import Gateway, GatewayServer
from serving.gateway.routes.table import ROUTES
from serving.gateway.settings import GatewayOptions
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor
from tests.stand_in import StandIn

# Tensors that several signatures have: the type (f: float32, i: int32, s: string, b: bool) and the rank of each.
GROUPS = dict(
    line.split(" = ")
    for line in """
TOLD = text_tokens:i1 truncated_tokens:i1 unknown_tokens:i1
CLASSES = classes:s2 label:s1 logits:f2 probabilities:f2
PIECES = input_ids:i2 lengths:i1 pieces:s2 segment_ids:i2
COUNTED = lengths:i1 text_tokens:i1 truncated_tokens:i1 unknown_tokens:i1
TOKENS = lengths:i1 pieces:s2 sequence_output:f3
SPANS = answer:s1 start:i1 end:i1 score:f1 no_answer_score:f1 answers:s2 starts:i2 ends:i2 scores:f2 probabilities:f2
WORDS = labels:s2 words:s2 starts:i2 ends:i2 probabilities:f3
""".strip().splitlines()
)
# Kind of model, signature, inputs, outputs. All but `bare` have `tokenize`, too.
TABLE = """
embedder | serving_default | text:s1 | embedding:f2
classifier | serving_default | text:s1 | CLASSES
cross-encoder | serving_default | first:s1 second:s1 | CLASSES
regressor | serving_default | first:s1 second:s1 | value:f1
pretrainer | serving_default | text:s1 | embedding:f2
pretrainer | fill_mask | text:s1 | ids:i3 pieces:s3 probabilities:f3 texts:s3
pretrainer | sparse | text:s1 | ids:i2 terms:s2 weights:f2
spans | serving_default | context:s1 question:s1 | SPANS
tagger | serving_default | text:s1 | WORDS
# As exports of today: they tell what they cut, but never next to a single output.
telling classifier | serving_default | text:s1 | CLASSES TOLD
telling classifier | tokenize | text:s1 | PIECES TOLD
telling regressor | serving_default | first:s1 second:s1 | value:f1
telling regressor | tokenize | first:s1 second:s1 | PIECES TOLD
telling embedder | serving_default | text:s1 | embedding:f2
telling embedder | tokenize | text:s1 | PIECES TOLD
embedder of tokens | serving_default | text:s1 | embedding:f2
embedder of tokens | tokens | text:s1 | TOKENS
prompted embedder | serving_default | text:s1 | embedding:f2
prompted embedder | with_options | text:s1 prompt_name:s1 truncate_left:b1 | embedding:f2 COUNTED prompt_names:s2
prompted embedder | tokens | text:s1 | TOKENS
prompted embedder | tokens_with_options | text:s1 prompt_name:s1 truncate_left:b1 | TOKENS TOLD
prompted embedder | tokenize | text:s1 | PIECES TOLD
optional classifier | serving_default | text:s1 | CLASSES
optional classifier | with_options | text:s1 truncate_left:b1 | CLASSES COUNTED
unprompted embedder | serving_default | text:s1 | embedding:f2
unprompted embedder | with_options | text:s1 truncate_left:b1 | embedding:f2 COUNTED
cls last | serving_default | text:s1 | embedding:f2
bare | serving_default | text:s1 | embedding:f2
"""


def tensors(text):
    """The types and ranks of tensors by their names."""
    named = (one.split(":") for word in text.split() for one in GROUPS.get(word, word).split())
    return {name: ({"f": 1, "i": 3, "s": 7, "b": 10}[kind[0]], int(kind[1])) for name, kind in named}


def signatures():
    found = {}
    for line in TABLE.strip().splitlines():
        if line[0] != "#":
            kind, name, *of = line.split(" | ")
            of = tuple(map(tensors, of))
            found.setdefault(kind, {"serving_default": of, "tokenize": (of[0], tensors("PIECES"))})[name] = of
    del found["bare"]["tokenize"]
    return found


SIGNATURES = signatures()
STRINGS, PAIR = map(tensors, ("text:s1", "first:s1 second:s1"))
PROMPTS = {b"": b"", b"query": b"query: ", b"passage": b"passage: "}
LABELS = [b"dull", b"fine"]
SIZE = 6
LONGEST = 16
# The signature `sparse` gives this to every row.
SPARSE = {
    "ids": np.int32([5, 9, 0]), "terms": np.array([b"fine", b"film", b""], object),
    "weights": np.float32([1.5, 0.25, 0])
}  # fmt: skip


def vector(text):
    return np.random.default_rng(zlib.crc32(text)).normal(size=SIZE).astype(np.float32)


def logits(texts):
    return vector(b"|".join(texts))[:2]


def tokens(texts):
    words = [word for text in texts for word in [*text.split(), b"[SEP]"]]
    return [b"[CLS]", *words[: LONGEST - 2], b"[SEP]"] if len(words) > LONGEST - 1 else [b"[CLS]", *words]


def cut_left(text):
    return b" ".join(text.split()[-(LONGEST - 2) :])


def truncation(rows):
    sizes = np.int32([sum(len(text.split()) for text in row) for row in rows])
    free = np.int32([LONGEST - 1 - len(row) for row in rows])
    unknown = np.int32([sum(text.split().count(b"[UNK]") for text in row) for row in rows])
    return {"text_tokens": sizes, "truncated_tokens": np.maximum(sizes - free, 0), "unknown_tokens": unknown}


def filled_up(rows, dtype=object):
    width = max(1, *map(len, rows))
    return np.array([[*row, *[b"" if dtype is object else 0] * (width - len(row))] for row in rows], dtype)


class FakeModel:
    """Answers Predict, notes what it was asked, waits or fails when it is told to."""

    def __init__(self, kind):
        self.kind = kind
        self.batches, self.metadata = [], []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)
        # Called with each request and its context.
        self.before = lambda asked, context: None
        self.labels, self.sign = LABELS, 1
        # Whether the last axis of every answer is turned round.
        self.reverses = False

    def __call__(self, request, context):
        asked = protos.PredictRequest.FromString(request)
        columns = {name: read_tensor(asked.inputs[name]).tolist() for name in sorted(asked.inputs)}
        told = {}
        if "truncate_left" in columns:
            left, texts = columns.pop("truncate_left"), columns["text"]
            prompts = [PROMPTS[name] for name in columns.pop("prompt_name", [b""] * len(left))]
            whole = [prompt + text for prompt, text in zip(prompts, texts)]
            told = truncation([(text,) for text in whole])
            columns["text"] = [cut_left(text) if at_start else text for text, at_start in zip(whole, left)]
        rows = list(zip(*columns.values()))
        self.metadata.append(dict(context.invocation_metadata()))
        name = asked.model_spec.signature_name.removesuffix("_with_options")
        if name == "serving_default":
            self.batches.append([[text.decode() for text in row] for row in rows])
            self.asked.release()
            assert self.open.wait(30)
        self.before(asked, context)
        answer = protos.PredictResponse()
        found = self.outputs(name, rows)
        for output, value in (found | told).items():
            if not asked.output_filter or output in asked.output_filter:
                fill_tensor(answer.outputs[output], value[..., ::-1] if self.reverses and value.ndim > 1 else value)
        return answer.SerializeToString()

    def outputs(self, signature, rows):
        if signature == "tokens":
            pieces = [tokens(row) for row in rows]
            found = np.zeros([len(rows), max(map(len, pieces)), 2], np.float32)
            for place, row in enumerate(pieces):
                found[place, : len(row)] = [vector(piece)[:2] for piece in row]
            return {"sequence_output": found, "lengths": np.int32(list(map(len, pieces)))}
        if signature == "sparse":
            return {name: np.stack([value] * len(rows)) for name, value in SPARSE.items()}
        if signature == "tokenize":
            pieces = [tokens(row) for row in rows]
            if self.kind == "cls last":
                pieces = [[*row, cls] for cls, *row in pieces]
            known = {b"[CLS]": 2, b"[SEP]": 3}
            ids = [[known.get(piece, 100 + len(piece)) for piece in row] for row in pieces]
            lengths = np.int32(list(map(len, pieces)))
            found = {"input_ids": filled_up(ids, np.int32), "lengths": lengths, "pieces": filled_up(pieces)}
            return found | truncation(rows)
        if signature == "fill_mask":
            masks = np.array([row[0].count(b"[MASK]") for row in rows])
            present = (np.arange(masks.max()) < masks[:, None])[:, :, None]
            pieces = np.where(present, np.array([b"_mat", b"_dog"], object), b"")
            texts = np.where(present, np.array([b"mat", b"dog"], object), b"")
            ids = np.where(present, np.int32([7, 8]), 0)
            return {
                "pieces": pieces, "texts": texts, "ids": ids,
                "probabilities": np.where(present, np.float32([0.7, 0.2]), 0)
            }  # fmt: skip
        if self.kind in ("spans", "tagger"):
            return (spans if self.kind == "spans" else words)(rows)
        scores = np.array([self.sign * logits(row) for row in rows], np.float32)
        return {
            "embedding": np.array([vector(b"|".join(row)) for row in rows], np.float32),
            "label": np.array([self.labels[int(row.argmax())] for row in scores], object),
            "classes": np.array([self.labels] * len(rows), object),
            "logits": scores,
            "probabilities": np.exp(scores) / np.exp(scores).sum(1, keepdims=True),
            "value": scores[:, 0],
            "lengths": np.int32([len(tokens(row)) for row in rows]),
            "prompt_names": np.array([[b"query", b"passage"]] * len(rows), object),
            **truncation(rows),
        }


class Front(StandIn):
    """Hands every call on to the server at `target`, as its model's `version`, unless a rule answers or waits."""

    def __init__(self, target, version=1):
        super().__init__(threads=16)
        self.version, self.calls = version, []
        # Called with the method's name, the request and the context.
        self.rule = lambda method, request, context: None
        self.point_at(target)

    def point_at(self, target, version=None):
        self._at = grpc.insecure_channel(target), version or self.version

    def service(self, details):
        method = details.method.rsplit("/")[-1]

        def call(request, context):
            self.calls.append(method)
            self.rule(method, request, context)
            channel, version = self._at
            if method == "Predict":
                asked = protos.PredictRequest.FromString(request).model_spec.version.value
                if asked not in (0, version):
                    context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific(m, {asked})")
            try:
                answer = channel.unary_unary(details.method)(request, timeout=30)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            kinds = {"Predict": protos.PredictResponse, "GetModelMetadata": protos.GetModelMetadataResponse}
            if method not in kinds:
                return answer
            read = kinds[method].FromString(answer)
            read.model_spec.version.value = version
            return read.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(call)


def spans(rows):
    """The context's first word answers every question, its second is the next best."""
    found = filled_up([context.split()[:2] for context, _ in rows])
    ends = np.int32([[len(word.decode()) for word in row] for row in found])
    first = ends[:, 0]
    return {
        "answer": found[:, 0], "answers": found, "start": first * 0, "starts": ends * 0, "end": first, "ends": ends,
        # As exports of before where there is none.
        "score": np.where(first, first / 2, -1e4), "scores": ends / 2,
        "no_answer_score": np.where(first, first / -4, 1e4),
        "probabilities": ends / np.maximum(ends.sum(1, keepdims=True), 1)
    }  # fmt: skip


def words(rows):
    """Every second word is a thing; from the fifth on they are cut off."""
    found = [text.split() for (text,) in rows]
    starts = [[len(b" ".join([*row[:n], b""]).decode()) for n in range(len(row))] for row in found]
    ends = [[start + len(word.decode()) for start, word in zip(*one)] for one in zip(starts, found)]
    labels = filled_up([[(b"O", b"THING")[n % 2] for n in range(min(len(row), 5))] for row in found])
    width = filled_up(found).shape[1]
    return {
        "labels": np.pad(labels, [(0, 0), (0, width - labels.shape[1])], constant_values=b""),
        "words": filled_up(found), "starts": filled_up(starts, np.int32), "ends": filled_up(ends, np.int32),
        "probabilities": np.full([len(rows), width, 2], 0.5, np.float32)
    }  # fmt: skip


# Of which kind a model is that can do what a route needs.
KINDS = {
    "classify": "classifier", "rerank": "cross-encoder", "answer": "spans", "tag": "tagger",
    "embed_all": "embedder of tokens",
    "fill_mask": "pretrainer", "embed_sparse": "pretrainer"
}  # fmt: skip


def kind_of(route):
    """Of which kind a model is that answers it, with numbers where there are any."""
    return KINDS.get(route.task, "embedder")


def failure_of(answer, path):
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


def timing_of(answer):
    """Milliseconds in the queue, at the model, and in all."""
    parts = re.fullmatch(r"queue;dur=(\S+), model;dur=(\S+), total;dur=(\S+)", answer.headers["server-timing"])
    return list(map(float, parts.groups()))


def wait_until(holds, seconds=60.0):
    """Waits until a condition holds; a call that fails says that it does not yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(grpc.RpcError, httpx.TransportError):
            if holds():
                return
        time.sleep(0.005)
    raise AssertionError("it never came to be")


def wait_until_healthy(url):
    wait_until(lambda: httpx.get(f"{url}/health").status_code == 200, 120)


def start_gateway(stack, target, live=True, models=("default",), keys=None, **options):
    """A gateway on a thread, until the stack ends: its `url`, `service` and an HTTP client."""
    options = GatewayOptions(**{"check_s": 0.2, "drain_s": 1.0} | options)
    server = GatewayServer(Gateway(Connection(target, attempts=1), models, keys, options), "127.0.0.1", 0)
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


def start_model(stack, kind, port=0):
    """A fake model of that kind, and its server, until the stack ends."""
    model = FakeModel(kind)
    stand_in = stack.enter_context(StandIn(model, signatures=SIGNATURES[kind], threads=16, port=port))
    stack.callback(model.open.set)
    return model, stand_in


@pytest.fixture
def fake_server():
    """fake_server(kind, port=0): a fake model of that kind behind a port; gives both."""
    with contextlib.ExitStack() as stack:
        yield functools.partial(start_model, stack)


@pytest.fixture
def front_of():
    """front_of(target, version=1): a Front, until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda *where: stack.enter_context(Front(*where))


@pytest.fixture(scope="session")
def shared_gateway():
    """shared_gateway(kind, **options): a gateway in front of a fake `model` of that kind, one for all
    tests; it looks at its model once, which stays."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def make(kind, **options):
            model, stand_in = start_model(stack, kind)
            gateway = start_gateway(stack, stand_in.target, **{"check_s": 600.0} | options)
            gateway.model = model
            return gateway

        yield make
