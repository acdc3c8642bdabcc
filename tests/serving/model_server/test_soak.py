"""Mixed load with version swaps: no good request fails, and neither memory nor threads grow."""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import prediction_service_pb2_grpc

from scripts.server import free_port
from tests.serving.model_server.conftest import post, predict_request
from tests.serving.model_server.models import export_half_plus_two

PREDICT = "/tensorflow.serving.PredictionService/Predict"


class Load:
    """Clients of every kind in threads, until told to stop. `failures` holds what a good request got instead."""

    def __init__(self, port: int, rest_port: int, pause: float):
        self.failures: list[str] = []
        self.good = 0
        self._stopped = threading.Event()
        self._rest_port, self._pause = rest_port, pause
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        kinds = (self._good_grpc, self._good_grpc, self._good_rest, self._large, self._malformed, self._broken_http)
        self._threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._channel.close()

    def _repeat(self, kind) -> None:
        while not self._stopped.is_set():
            kind()
            self._stopped.wait(self._pause)

    def _good_grpc(self, rows: int = 1) -> None:
        request = predict_request(x=np.ones((rows, 1), np.float32))
        try:
            values = np.array(self._stub.Predict(request, 30).outputs["y"].float_val)
            # A version's bias is its number: every row of an answer must come from one version.
            if len(values) != rows or len(set(values)) != 1 or (values[0] - 0.5) % 1:
                self.failures.append(f"wrong answer {values[:5]}")
            self.good += 1
        except grpc.RpcError as error:
            self.failures.append(f"{error.code()}: {error.details()}")

    def _large(self) -> None:
        self._good_grpc(rows=200_000)
        self._stopped.wait(0.2)

    def _good_rest(self) -> None:
        status, body = self._post(json.dumps({"instances": [[1.0], [1.0]]}).encode())
        self.good += 1
        if status != 200:
            self.failures.append(f"HTTP {status}: {body!r}")

    def _malformed(self) -> None:
        junk = random.randbytes(random.randrange(200))
        try:
            self._channel.unary_unary(PREDICT)(junk, 30)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self.failures.append(f"malformed request: {error.details()}")
        self._post(random.choice([b"{", b'{"instances": ["a"]}', b'{"instances": ' + b"[" * 10**5, junk]))

    def _broken_http(self) -> None:
        with socket.create_connection(("127.0.0.1", self._rest_port)) as connection:
            connection.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        self._stopped.wait(0.05)

    def _post(self, body: bytes) -> tuple[int, bytes]:
        return post(self._rest_port, "/v1/models/default:predict", body)


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
        load = Load(port, rest_port, pause)
        states, version, end = [], 1, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(swap_every)
            version += 1
            export_half_plus_two(base / f"tmp{version}", float(version)).rename(base / str(version))
            states.append(process_state(process.pid))
        load.stop()
        assert load.failures == []
        assert load.good > seconds
    finally:
        process.terminate()
        assert process.wait(60) == 0
    memory, threads = zip(*states, strict=True)
    half = len(states) // 2
    print(f"memory {[round(m) for m in memory]} MB, threads {threads}, {load.good} good requests")
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
