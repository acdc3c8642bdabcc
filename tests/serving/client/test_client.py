"""The client against servers that answer, refuse, drop, stall and speak TLS."""
# One `with` for the server, one for the client, one for what it raises reads better than all three in a line.
# ruff: noqa: SIM117

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import trustme

from serving.benchmark.stand_in import TEXT, StandIn, constant_answer
from serving.client import AsyncClient, Client, Connection, ServingError
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor
from tfrecords.base.errors import UserError


def echo(request: bytes, context) -> bytes:
    """Every input as an output of the same name."""
    asked = protos.PredictRequest.FromString(request)
    answer = protos.PredictResponse()
    for name, tensor in asked.inputs.items():
        answer.outputs[name].CopyFrom(tensor)
    return answer.SerializeToString()


class Failing:
    """Fails the first `times` calls with a status, then answers; counts the calls."""

    def __init__(self, code: grpc.StatusCode, times: int = 10**6, message: str = "no"):
        self.code, self.times, self.message, self.calls = code, times, message, 0

    def __call__(self, request, context):
        self.calls += 1
        if self.calls <= self.times:
            context.abort(self.code, self.message)
        return constant_answer()


IDS = {"input_ids": np.array([[2, 7, 3]], np.int32), "lengths": np.array([3], np.int32)}


def test_predict_sends_and_reads_every_kind():
    inputs = {"a": np.array([[1.5]], np.float32), "b": np.array([2], np.int64), "c": np.array([b"x"], object)}
    with StandIn(echo) as server, Client(server.target, "default") as client:
        answer = client.predict(inputs)
    assert {name: array.tolist() for name, array in answer.items()} == {"a": [[1.5]], "b": [2], "c": [b"x"]}


def test_predict_ids_in_batches_keeps_order():
    rows = [[4] * n for n in (5, 1, 3, 2, 4)]
    with StandIn(echo) as server, Client(server.target, "default") as client:
        answer = client.predict_ids(rows, batch_size=2)
    assert answer["lengths"].tolist() == [5, 1, 3, 2, 4]
    assert answer["input_ids"].shape == (5, 5)


def test_predict_text_and_metadata_and_status():
    with StandIn(echo, inputs=TEXT) as server, Client(server.target, "default") as client:
        assert client.predict_text(["b", "a é"])["text"].tolist() == [b"b", "a é".encode()]
        assert str(client.signature()) == "(text: string [any]) -> (probabilities: float32 [any, any])"
        assert [(status.version, status.state) for status in client.status()] == [(1, "AVAILABLE")]
        assert client.served_version() == 1
        with pytest.raises(UserError, match="does not take token ids"):
            client.predict_ids([[1]])


def test_unknown_signature_names_those_there_are():
    with StandIn() as server, Client(server.target, "default", signature="nope") as client:
        with pytest.raises(UserError, match="no signature 'nope'; it has serving_default"):
            client.signature()


def test_asyncio_client_gives_the_same_and_runs_many_at_once():
    async def ask(target):
        async with AsyncClient(target, "default") as client:
            answers = await asyncio.gather(*[client.predict_ids([[2, n]]) for n in range(20)])
            return (
                [answer["input_ids"].tolist() for answer in answers],
                await client.status(),
                await client.served_version(),
            )

    with StandIn(echo) as server:
        answers, status, version = asyncio.run(ask(server.target))
    assert answers == [[[2, n]] for n in range(20)]
    assert status[0].state == "AVAILABLE" and version == 1


def test_an_error_passes_from_process_to_process():
    error = ServingError(grpc.StatusCode.UNAVAILABLE, "gone", "is it running?", "h:1")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_asyncio_client_raises_the_same_error():
    async def ask(target):
        async with AsyncClient(Connection(target, attempts=1), "default") as client:
            await client.predict(IDS)

    with StandIn(Failing(grpc.StatusCode.INVALID_ARGUMENT, message="bad shape")) as server:
        with pytest.raises(ServingError, match="INVALID_ARGUMENT: bad shape"):
            asyncio.run(ask(server.target))


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_passing_failures_are_tried_again(code):
    failing = Failing(code, times=2)
    with StandIn(failing) as server:
        with Client(Connection(server.target, attempts=4, first_backoff_s=0.01), "default") as client:
            assert client.predict(IDS)["probabilities"].shape == (1, 2)
    assert failing.calls == 3


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code.name not in ("OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED")]
)
def test_other_failures_are_not(code):
    failing = Failing(code)
    with StandIn(failing) as server, Client(Connection(server.target, attempts=5), "default") as client:
        with pytest.raises(ServingError) as caught:
            client.predict(IDS)
    assert failing.calls == 1 and caught.value.code is code


def test_attempts_come_to_an_end():
    failing = Failing(grpc.StatusCode.UNAVAILABLE)
    with StandIn(failing) as server:
        with Client(Connection(server.target, attempts=3, first_backoff_s=0.01), "default") as client:
            with pytest.raises(ServingError, match="UNAVAILABLE"):
                client.predict(IDS)
    assert failing.calls == 3


def test_one_attempt_means_one():
    failing = Failing(grpc.StatusCode.UNAVAILABLE)
    with StandIn(failing) as server, Client(Connection(server.target, attempts=1), "default") as client:
        with pytest.raises(ServingError):
            client.predict(IDS)
    assert failing.calls == 1


@pytest.mark.parametrize("attempts", [1, 4])
def test_calls_go_in_turn_to_all_addresses_of_a_name(attempts):
    counting = [Failing(grpc.StatusCode.OK, times=0) for _ in range(2)]
    with StandIn(counting[0]) as one, StandIn(counting[1]) as other:
        target = f"ipv4:{one.target},{other.target}"
        with Client(Connection(target, attempts=attempts), "default") as client:
            end = time.monotonic() + 10
            while min(server.calls for server in counting) < 3 and time.monotonic() < end:
                client.predict(IDS)
    assert min(server.calls for server in counting) == 3


def test_a_dropped_connection_is_opened_again(relay):
    with StandIn() as server:
        between = relay(server.target)
        with Client(Connection(between.target, first_backoff_s=0.05), "default") as client:
            client.predict(IDS)
            between.cut()
            assert client.predict(IDS)["probabilities"].shape == (1, 2)


def test_a_stalled_server_meets_the_deadline():
    release = threading.Event()

    def stall(request, context):
        release.wait(20)
        return constant_answer()

    with StandIn(stall) as server, Client(server.target, "default", timeout_s=0.2) as client:
        with pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED.*raise it"):
            client.predict(IDS)
        release.set()


@pytest.mark.parametrize(
    ("code", "message", "mend"),
    [
        (
            "RESOURCE_EXHAUSTED",
            "Server Threadpool Exhausted",
            "start it with --grpc_max_threads above the most requests",
        ),
        ("RESOURCE_EXHAUSTED", "Run() timeout exceeded while waiting in batching queue", "num_batch_threads"),
        ("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full", "max_enqueued_batches"),
        ("NOT_FOUND", "Servable not found for request: Latest(x)", "--model_name"),
        ("FAILED_PRECONDITION", 'Serving signature key "s" not found.', "python -m serving.client"),
        ("INVALID_ARGUMENT", "input size does not match signature: 0!=1 len({}) != len({x}).", "lists what it takes"),
        ("INVALID_ARGUMENT", "Task size 4 is larger than maximum input batch size 3", "batch_size"),
        ("INVALID_ARGUMENT", "Unrecognized servable version label: L", "label"),
        ("INTERNAL", "XLA compilation disabled", "--xla_cpu_compilation_enabled=true"),
    ],
)
def test_errors_say_what_to_change(code, message, mend):
    with StandIn(Failing(grpc.StatusCode[code], message=message)) as server:
        with Client(Connection(server.target, attempts=1), "default") as client:
            with pytest.raises(ServingError) as caught:
                client.predict(IDS)
    assert mend in caught.value.hint and mend in str(caught.value)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_absent_server_says_so():
    with Client(Connection("127.0.0.1:1", attempts=1), "default") as client:
        with pytest.raises(ServingError, match=r"127.0.0.1:1: UNAVAILABLE.*is the server running"):
            client.status()


def test_a_rest_port_is_recognised():
    import http.server

    rest = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    with Client(Connection(f"127.0.0.1:{rest.server_port}", attempts=1), "default", timeout_s=5) as client:
        with pytest.raises(ServingError, match="REST port"):
            client.status()
    rest.shutdown()


def test_answers_above_four_megabytes_arrive():
    big = np.zeros((1, 3_000_000), np.float32)
    with StandIn(echo) as server, Client(server.target, "default") as client:
        np.testing.assert_array_equal(client.predict({"x": big})["x"], big)


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression_sends_fewer_bytes(relay, compression):
    inputs = {"input_ids": np.zeros((64, 512), np.int32)}
    sent = {}
    with StandIn() as server:
        for setting in (None, compression):
            between = relay(server.target)
            with Client(Connection(between.target, compression=setting), "default") as client:
                client.predict(inputs)
            sent[setting] = between.sent_bytes
    assert sent[None] > 64 * 512 * 4 > 20 * sent[compression]


def test_one_client_serves_many_threads():
    with StandIn(echo) as server, Client(server.target, "default") as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.predict({"x": np.array([n])})["x"].item(), range(100)))
    assert answers == list(range(100))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name, identity in (("server", "models.example"), ("client", "someone.example")):
        certificate = authority.issue_cert(identity)
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


def tls_server(folder, mutual):
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    roots = (folder / "authority.pem").read_bytes() if mutual else None
    return StandIn(credentials=grpc.ssl_server_credentials([pair], roots, require_client_auth=mutual))


def test_tls(certificates):
    trusted = {"root_certificates": str(certificates / "authority.pem"), "server_name": "models.example"}
    with tls_server(certificates, mutual=False) as server:
        with Client(Connection(server.target, **trusted), "default") as client:
            assert client.served_version() == 1
        for wrong in ({"tls": True, "server_name": "models.example"}, {**trusted, "server_name": "other.example"}):
            with Client(Connection(server.target, attempts=1, **wrong), "default", timeout_s=5) as client:
                with pytest.raises(ServingError, match="root_certificates"):
                    client.status()


def test_mutual_tls(certificates):
    trusted = {"root_certificates": str(certificates / "authority.pem"), "server_name": "models.example"}
    pair = {"client_certificate": str(certificates / "client.pem"), "client_key": str(certificates / "client.key")}
    with tls_server(certificates, mutual=True) as server:
        with Client(Connection(server.target, **trusted, **pair), "default") as client:
            assert client.served_version() == 1
        with Client(Connection(server.target, attempts=1, **trusted), "default", timeout_s=5) as client:
            with pytest.raises(ServingError):
                client.status()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target": "localhost"}, "HOST:PORT"),
        ({"target": "h:1", "compression": "zip"}, "gzip or deflate"),
        ({"target": "h:1", "attempts": 9}, "1 to 5"),
        ({"target": "h:1", "client_key": "k"}, "go together"),
    ],
)
def test_wrong_connection_settings_are_met_at_the_door(settings, words):
    with pytest.raises(UserError, match=words):
        Connection(**settings)


def test_missing_certificate_file_is_named():
    with pytest.raises(UserError, match=r"/no/such\.pem"):
        Client(Connection("h:1", root_certificates="/no/such.pem"), "default")


def test_float_answers_decode_from_value_fields():
    values = np.random.default_rng(0).normal(size=(100, 4000)).astype(np.float32)
    tensor = protos.TensorProto(dtype=1, float_val=values.ravel())
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    np.testing.assert_array_equal(read_tensor(tensor), values)
    content = protos.TensorProto()
    fill_tensor(content, values)
    np.testing.assert_array_equal(read_tensor(content), values)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "serving.client", *arguments], capture_output=True, text=True, timeout=60
    )


def test_import_brings_no_tensorflow():
    code = "import serving.client, serving.client.__main__, sys; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_command_line_describes_and_answers():
    with StandIn(echo, inputs=TEXT) as server:
        described = command(f"--target={server.target}")
        assert described.returncode == 0
        assert described.stdout.splitlines() == [
            "version 1: AVAILABLE",
            "signature serving_default",
            "  takes  text: string [any]",
            "  gives  probabilities: float32 [any, any]",
        ]
        answered = command(f"--target={server.target}", "--text=a film", "--text=é")
        assert answered.stdout.splitlines() == ["a film", "  text  a film", "é", "  text  é"]
        assert command(f"--target={server.target}", "--text=x", "--json").stdout == '{"text": "x"}\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target=127.0.0.1:1", "--text=a"], "UNAVAILABLE"),
        (["--target=nonsense"], "HOST:PORT"),
        (["--text=a", "--ids=1"], "choose one of them"),
        (["--ids=1,x"], "comma-separated"),
    ],
)
@pytest.mark.few(2)
def test_command_line_failures_are_one_line_and_status_1(arguments, words):
    failed = command(*arguments)
    assert failed.returncode == 1 and failed.stdout == ""
    assert len(failed.stderr.splitlines()) == 1 and words in failed.stderr
