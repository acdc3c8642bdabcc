"""Mixed load with version swaps: no good request fails, and neither memory nor threads grow."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.servers import free_port
from tests.serving.model_server.conftest import post, predict_request
from tests.serving.model_server.models import export_half_plus_two

REST = "/v1/models/default:predict"
BAD = [b"{", b'{"instances": ["a"]}', b'{"instances": ' + b"[" * 10**5]


@contextlib.contextmanager
def load(port: int, rest_port: int, pause: float):
    """Clients of every kind in threads; gives how many requests were good, and what some of these got instead."""
    good, failures, stopped = [], [], threading.Event()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def over_grpc(rows=1):
        good.append(rows)
        try:
            values = list(stub.Predict(predict_request(x=np.ones((rows, 1), np.float32)), 30).outputs["y"].float_val)
            # A version's bias is its number: every row of an answer must come from one version.
            if values != [values[0]] * rows or (values[0] - 0.5) % 1:
                failures.append(f"wrong answer {values[:5]}")
        except grpc.RpcError as error:
            failures.append(f"{error.code()}: {error.details()}")

    def large():
        over_grpc(rows=200_000)
        stopped.wait(0.2)

    def over_rest():
        good.append(2)
        if (answer := post(rest_port, REST, b'{"instances": [[1.0], [1.0]]}'))[0] != 200:
            failures.append(str(answer))

    def malformed():
        junk = random.randbytes(random.randrange(200))
        try:
            channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(junk, 30)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                failures.append(f"malformed request: {error.details()}")
        post(rest_port, REST, random.choice([*BAD, junk]))

    def broken_http():
        with socket.create_connection(("127.0.0.1", rest_port)) as connection:
            connection.sendall(f"POST {REST} HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{{".encode())
        stopped.wait(0.05)

    def repeat(kind):
        while not stopped.wait(pause):
            kind()

    kinds = over_grpc, over_grpc, over_rest, large, malformed, broken_http
    with channel, ThreadPoolExecutor(len(kinds)) as pool:
        ended = [pool.submit(repeat, kind) for kind in kinds]
        try:
            yield good, failures
        finally:
            stopped.set()
        assert [one.result() for one in ended] == [None] * len(kinds)


def process_state(pid: int) -> tuple[float, int]:
    """(resident memory in MB, threads)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"])


def soak(base: Path, seconds: float, swap_every: float, pause: float = 0) -> None:
    export_half_plus_two(base / "1", 1.0)
    port, rest_port = free_port(), free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.model_server", f"--port={port}", f"--rest_api_port={rest_port}",
         f"--model_base_path={base}", "--grpc_max_threads=32"], stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for line in process.stderr:
            if "Exporting HTTP/REST API" in line:
                break
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        states = []
        with load(port, rest_port, pause) as (good, failures):
            for version in range(2, 2 + int(seconds / swap_every)):
                time.sleep(swap_every)
                export_half_plus_two(base / f"tmp{version}", float(version)).rename(base / str(version))
                states.append(process_state(process.pid))
        assert failures == [] and len(good) > seconds
    finally:
        process.terminate()
        assert process.wait(60) == 0
    memory, threads = zip(*states, strict=True)
    half = len(states) // 2
    print(f"memory {[round(m) for m in memory]} MB, threads {threads}, {len(good)} good requests")
    assert max(memory[half:]) < 1.15 * max(memory[:half]), f"memory grows: {[round(m) for m in memory]} MB"
    assert max(threads[half:]) <= max(threads[:half]) + 2, f"threads grow: {threads}"


@pytest.mark.slow
def test_eight_seconds(tmp_path):
    # Pauses leave the cores to the tests that run beside it.
    soak(tmp_path / "m", seconds=8, swap_every=0.5, pause=0.1)


@pytest.mark.slow("soak")
@pytest.mark.timeout(1000)
def test_ten_minutes(tmp_path):
    soak(tmp_path / "m", seconds=600, swap_every=7)
