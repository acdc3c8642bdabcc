"""The client against servers that answer, refuse, drop, stall, change and speak TLS."""
# One `with` for the server, one for the client, one for what it raises reads better than all three in a line.
# ruff: noqa: SIM117

import asyncio
import contextlib
import http.server
import inspect
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from serving.benchmark.settings import BenchmarkSettings
from serving.client import AsyncClient, Client, Connection, ServingError, channel
from serving.client.__main__ import ClientSettings
from serving.client.__main__ import main as client_main
from serving.client.messages import text_inputs
from serving.gateway.__main__ import GatewaySettings
from serving.score.__main__ import ScoringSettings
from serving.score.__main__ import main as score_main
from serving.wire import protos
from tests.column import Column
from tests.refusals import refused
from tests.serving.client.conftest import connected, write_certificates
from tests.serving.gateway.conftest import vector
from tests.serving.score.conftest import read_lines
from tests.stand_in import TEXT, StandIn, constant_answer


def echo(request, context):
    """Every input as an output of the same name."""
    asked = protos.PredictRequest.FromString(request)
    answer = protos.PredictResponse()
    for name, tensor in asked.inputs.items():
        answer.outputs[name].CopyFrom(tensor)
    return answer.SerializeToString()


class Failing:
    """Fails the first `times` calls with a status, then answers; counts the calls."""

    def __init__(self, code, times=10**6, message="no"):
        self.code, self.times, self.message, self.calls = code, times, message, 0

    def __call__(self, request, context):
        self.calls += 1
        if self.calls <= self.times:
            context.abort(self.code, self.message)
        return constant_answer()


IDS = {"input_ids": np.array([[2, 7, 3]], np.int32), "lengths": np.array([3], np.int32)}


def test_predict_text_and_metadata_and_status():
    with connected(echo, TEXT) as client:
        assert client.predict_text(["b", "a é"])["text"].tolist() == [b"b", "a é".encode()]
        assert str(client.signature()) == "(text: string [any]) -> (probabilities: float32 [any, any])"
        assert [(status.version, status.state) for status in client.status()] == [(1, "AVAILABLE")]
        assert client.served_version() == 1
        with refused("does not take token ids"):
            client.predict_ids([[1]])
        for wrong, words in (
            ("Its letters would each be answered", "texts is one string; give a list of strings"),
            (b"so would its bytes", "texts is one string"),
            (["roof", None], r"texts\[1\] is None, a NoneType; give strings"),
            ([b"\xff"], r"texts\[0\] is no UTF-8"),
            (3, "texts is a int, 3"),
            ({"roof"}, "texts is a set"),
        ):
            with refused(words):
                client.predict_text(wrong)


@pytest.mark.parametrize("column", [Column, lambda values: Column(values, "xyz"), iter, tuple])
def test_rows_are_answered_in_the_order_of_their_places(column):
    texts, rows = ["a roof", "barn", "the sea"], [[5, 6, 7], [8], [9, 4]]
    encoded = [text.encode() for text in texts]
    with connected(echo, TEXT) as client:
        assert client.predict_text(column(texts))["text"].tolist() == encoded
        assert client.predict_text(column(encoded), batch_size=1)["text"].tolist() == encoded
        assert client.predict({"text": column(texts)})["text"].tolist() == encoded
        assert text_inputs(client.signature(), column(texts))["text"].tolist() == encoded
    with connected(echo, {"input_ids": (3, 2), "segment_ids": (3, 2)}) as client:
        answer = client.predict_ids(
            column([column(row) for row in rows]), column([[1] * len(row) for row in rows]), batch_size=2
        )
        assert answer["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0], [9, 4, 0]]
        assert answer["segment_ids"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        with refused(r"rows\[0\] is a int, 5; give a list of numbers"):
            client.predict_ids([5, 6])


def test_unknown_signature_names_those_there_are():
    with connected(options={"signature": "nope"}) as client:
        with refused("no signature 'nope'; it has serving_default"):
            client.signature()


def test_asyncio_client_gives_the_same_and_runs_many_at_once():
    async def ask(target):
        async with AsyncClient(target, "default") as client:
            answers = await asyncio.gather(*[client.predict_ids([[2, n]]) for n in range(20)])
            assert [answer["input_ids"].tolist() for answer in answers] == [[[2, n]] for n in range(20)]
            assert (await client.status())[0].state == "AVAILABLE" and await client.served_version() == 1

    async def fail(target):
        async with AsyncClient(Connection(target, attempts=1), "default") as client:
            await client.predict(IDS)

    with StandIn(echo) as server:
        asyncio.run(ask(server.target))
    with StandIn(Failing(grpc.StatusCode.INVALID_ARGUMENT, message="bad shape")) as server:
        with pytest.raises(ServingError, match="INVALID_ARGUMENT: bad shape"):
            asyncio.run(fail(server.target))


def test_an_asyncio_client_of_no_loop_answers_in_each():
    """One after the other, in one that it closes it in, and in two threads at once."""
    with StandIn(echo) as server:
        client, other = (AsyncClient(server.target, "default") for _ in range(2))

        async def ask(number):
            answer = await client.predict_ids([[2, number]])
            await client.close()
            return answer["input_ids"].tolist()

        async def meet():
            first = await other.predict_ids([[2, 1]])
            with ThreadPoolExecutor(1) as pool:
                second = await asyncio.wrap_future(pool.submit(asyncio.run, other.predict_ids([[2, 2]])))
            return [answer["input_ids"].tolist() for answer in (first, second, await other.predict_ids([[2, 3]]))]

        assert [asyncio.run(ask(number)) for number in range(3)] == [[[2, number]] for number in range(3)]
        assert asyncio.run(meet()) == [[[2, 1]], [[2, 2]], [[2, 3]]]


def test_an_error_passes_from_process_to_process():
    error = ServingError(grpc.StatusCode.UNAVAILABLE, "gone", "is it running?", "h:1")
    error.request_id = "abc"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize(
    "code, times, attempts, calls",
    [
        ("UNAVAILABLE", 2, 4, 3), ("RESOURCE_EXHAUSTED", 2, 4, 3), ("UNAVAILABLE", 9, 3, 3), ("UNAVAILABLE", 9, 1, 1),
        *((code.name, 9, 5, 1) for code in grpc.StatusCode
          if code.name not in ("OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"))
    ]
)  # fmt: skip
def test_failures_that_pass_are_tried_again_and_no_others(code, times, attempts, calls):
    failing = Failing(grpc.StatusCode[code], times)
    with connected(failing, attempts=attempts) as client:
        if times < attempts:
            assert client.predict(IDS)["probabilities"].shape == (1, 2)
        else:
            with pytest.raises(ServingError, match=code) as caught:
                client.predict(IDS)
            assert caught.value.code is grpc.StatusCode[code]
    assert failing.calls == calls


@pytest.mark.parametrize("attempts", [1, 4])
def test_calls_go_in_turn_to_all_addresses_of_a_name(attempts):
    counting = [Failing(grpc.StatusCode.OK, times=0) for _ in range(2)]
    with StandIn(counting[0]) as one, StandIn(counting[1]) as other:
        target = f"ipv4:{one.target},{other.target}"
        with Client(Connection(target, attempts=attempts), "default") as client:
            # The second address may be connected to later.
            for _ in range(10_000):
                client.predict(IDS)
                if min(server.calls for server in counting) == 3:
                    break
    assert min(server.calls for server in counting) == 3


def test_a_dropped_connection_is_opened_again(relay):
    with StandIn() as server:
        between = relay(server.target)
        with Client(between.target, "default") as client:
            client.predict(IDS)
            between.cut()
            assert client.predict(IDS)["probabilities"].shape == (1, 2)


@pytest.mark.parametrize("version", [1, 2])
def test_another_model_is_asked_by_its_own_signatures(fake_server, front_of, version):
    front = front_of(fake_server("classifier")[1].target)
    with Client(front.target, "default") as client:
        client.classify(["a"])
        front.point_at(fake_server("cross-encoder")[1].target, version)
        assert client.rerank("a", ["b"]).shape == (1,)
        assert client.classify([("a", "b")])["label"].shape == (1,)
        front.point_at(fake_server("embedder")[1].target, version)
        np.testing.assert_array_equal(client.embed(["a"]), [vector(b"a")])
        assert client.predict_text(["b", "a"])["embedding"].shape[0] == 2


@pytest.mark.parametrize("timeout_s", [0.3, 101])
def test_a_connection_that_died_without_a_word_is_replaced(relay, monkeypatch, timeout_s):
    """Also for new clients of the process, which share connections; with times of a second in place of 20 s."""
    quick = (("grpc.keepalive_time_ms", 500), ("grpc.http2.ping_timeout_ms", 500), ("grpc.keepalive_timeout_ms", 500))
    monkeypatch.setattr(channel, "_PINGS", (*quick, ("grpc.keepalive_permit_without_calls", 1)))
    monkeypatch.setattr(channel, "_RARE_PINGS", quick)
    with StandIn(lambda *_: constant_answer()) as server:
        between = relay(server.target)
        with Client(between.target, "default") as first:
            first.predict(IDS, timeout_s=timeout_s)
            between.die()
            for _ in range(40):
                with contextlib.suppress(ServingError), Client(between.target, "default") as client:
                    client.predict(IDS, timeout_s=timeout_s)
                    break
                time.sleep(0.1)
            else:
                raise AssertionError("the connection was used on")
            first.predict(IDS, timeout_s=timeout_s)


def test_a_stalled_server_meets_the_deadline():
    release = threading.Event()
    with connected(lambda *_: release.wait(20) and constant_answer(), options={"timeout_s": 0.2}) as client:
        with pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED.*raise it"):
            client.predict(IDS)
        release.set()


@pytest.mark.parametrize(
    "code, message, change",
    [
        ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted", "--grpc_max_threads above the most requests"),
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
def test_errors_say_what_to_change(code, message, change):
    with connected(Failing(grpc.StatusCode[code], message=message), attempts=1) as client:
        with pytest.raises(ServingError) as caught:
            client.predict(IDS)
    assert change in caught.value.hint and change in str(caught.value)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_absent_server_and_a_rest_port_say_so():
    rest = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    for port, words in ((1, "127.0.0.1:1: UNAVAILABLE.*is the server running"), (rest.server_port, "REST port")):
        with Client(Connection(f"127.0.0.1:{port}", attempts=1), "default", timeout_s=5) as client:
            with pytest.raises(ServingError, match=words):
                client.status()
    rest.shutdown()


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression_sends_fewer_bytes(relay, compression):
    sent = {}
    with StandIn() as server:
        for setting in (None, compression):
            between = relay(server.target)
            with Client(Connection(between.target, compression=setting), "default") as client:
                client.predict({"input_ids": np.zeros((64, 512), np.int32)})
            sent[setting] = between.sent_bytes
    assert sent[None] > 64 * 512 * 4 > 20 * sent[compression]


def test_commands_show_their_certificate(tmp_path, capsys):
    files = write_certificates(tmp_path)
    key, pem, roots = ((tmp_path / name).read_bytes() for name in ("server.key", "server.pem", "authority.pem"))
    credentials = grpc.ssl_server_credentials([(key, pem)], roots, require_client_auth=True)
    (tmp_path / "rows.txt").write_text("a roof")
    with StandIn(inputs=TEXT, credentials=credentials) as server:
        where = {"target": server.target, **files}
        client_main(ClientSettings(**where, text=("a roof",)))
        assert "probabilities" in capsys.readouterr().out
        rows = {"input": str(tmp_path / "rows.txt"), "model": "default"}
        score_main(ScoringSettings(**where, **rows, output_dir=str(tmp_path / "scores")))
        assert read_lines(tmp_path / "scores" / "rows.jsonl") == [{"probabilities": [0.25, 0.75]}]
        for kind in (BenchmarkSettings, GatewaySettings):
            with Client(kind(**where).connection(), "default") as client:
                assert client.served_version() == 1


def test_a_certificate_file_of_another_format_is_met_at_the_door(tmp_path):
    (tmp_path / "root.der").write_bytes(b"0\x82")
    connection = Connection("127.0.0.1:1", root_certificates=str(tmp_path / "root.der"))
    for connect in (connection.open, connection.open_async):
        with refused(r"root\.der' is no PEM file"):
            connect()


def test_wrong_connection_settings_are_met_at_the_door():
    with refused("1 to 5"):
        Connection("h:1", attempts=9)
    with refused("go together"):
        Connection("h:1", client_key="k")
    with refused("choose gzip or deflate"):
        Connection("h:1", compression="zip")


def test_command_line_describes_and_answers_without_tensorflow(run_module):
    with StandIn(echo, inputs=TEXT) as server:

        def command(*arguments):
            ended = run_module("serving.client", f"--target={server.target}", *arguments, without_tensorflow=True)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        assert command().splitlines() == [
            "version 1: AVAILABLE",
            "signature serving_default",
            "  takes  text: string [any]",
            "  gives  probabilities: float32 [any, any]",
        ]
        assert command("--text=a film", "--text=é").splitlines() == ["a film", "  text  a film", "é", "  text  é"]
        assert command("--text=x", "--json") == '{"text": "x"}\n'


def test_the_command_line_sends_several_inputs(capsys):
    with StandIn(echo, inputs={"question": (7, 1), "context": (7, 1)}) as server:
        where = {"target": server.target}
        client_main(ClientSettings(**where, input=("question=who", "context=Al met Bo", "context=Bo")))
        assert capsys.readouterr().out.splitlines() == [
            *("row 0", "  context  Al met Bo", "  question  who", "row 1", "  context  Bo", "  question  who")
        ]
        with refused("give each by --input=NAME=VALUE"):
            client_main(ClientSettings(**where, text=("who",)))
        with refused("--input=who is not NAME=VALUE"):
            client_main(ClientSettings(**where, input=("who",)))


def test_both_clients_have_the_same_methods_with_their_documentation():
    names = [name for name, method in vars(Client).items() if inspect.isfunction(method) and name[0] != "_"]
    shared = sorted(set(names) - {"close", "raw_stub"})
    assert {"predict", "predict_ids", "embed", "served_version"} <= set(shared)
    for name in shared:
        blocking, awaited = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.iscoroutinefunction(awaited) and not inspect.iscoroutinefunction(blocking)
        assert blocking.__name__ == awaited.__name__ == name and blocking.__doc__ == awaited.__doc__
        assert "Returns" in blocking.__doc__
        assert inspect.signature(blocking) == inspect.signature(awaited)
        assert "Generator" not in str(inspect.signature(blocking).return_annotation)
