"""Tiny models, the commands that serve and score them as processes, and clients that count what they get."""

import contextlib
import functools
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest

from serving.client import Client, ServingError
from tests.conftest import ROOT
from tests.servers import free_port
from tfrecords.base.machine.processes import interrupts_deferred, interrupts_held_back

# Seconds that anything may take: longer than a tiny model needs on a machine that does other things too.
PATIENCE_S = 60.0


def wait_for(condition, what, seconds=0.0):
    """Waits until the condition holds; fails after so long, or PATIENCE_S."""
    seconds = max(seconds, PATIENCE_S)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(ServingError, OSError, http.client.HTTPException):
            if condition():
                return
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {seconds:.0f} s")


def export(folder, version):
    """Writes a model that embeds a text as [bytes of the text, version]; it appears under its number at once."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def embed(text):
        lengths = tf.cast(tf.strings.length(text), tf.float32)
        return {"embedding": tf.stack([lengths, tf.fill(tf.shape(lengths), float(version))], 1)}

    module = tf.Module()
    module.embed = embed
    unfinished = folder.parent / f"unfinished-{folder.name}-{version}"
    tf.saved_model.save(module, str(unfinished), signatures=embed)
    folder.mkdir(parents=True, exist_ok=True)
    return unfinished.rename(folder / str(version))


class Process:
    """A command that runs, its log and its ports."""

    def __init__(self, command, log, files=0, file_bytes=0, **ports):
        def limit():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if file_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        self.command, self.log, self.ports = list(command), log, ports
        # Those that it has of `port`, `rest` and `http`.
        vars(self).update(ports)
        # Ctrl-C reaches this command alone, whose test ends what it has started.
        with log.open("ab") as output, interrupts_deferred(), interrupts_held_back():
            self._process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit
            )
        self.pid = self._process.pid

    def send(self, number):
        self._process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        """Sends a signal and returns the exit status; fails where it does not end in time."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.wait(PATIENCE_S)

    def wait(self, seconds=0.0):
        seconds = seconds or 5 * PATIENCE_S
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"{self.command[2]} did not end within {seconds:.0f} s")

    @property
    def target(self):
        return f"127.0.0.1:{self.port}"

    @property
    def runs(self):
        return self._process.poll() is None

    @property
    def last_line(self):
        return (self.log.read_text(errors="replace").strip().splitlines() or ["(nothing)"])[-1]

    @property
    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_and_threads(self):
        """Resident memory in kB, and threads."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]), int(fields["Threads"])

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stage:
    """One test's folder and processes, which end with it."""

    def __init__(self, folder, models):
        self.folder, self.models = folder, models
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def enter(self, context):
        return self._stack.enter_context(context)

    def started(self, *command, log="", **options):
        """Starts `python -m COMMAND`."""
        path = self.folder / f"{log or command[0]}.log"
        process = Process([sys.executable, "-m", *command], path, **options)
        self._stack.callback(lambda: process.end(signal.SIGKILL) if process.runs else None)
        return process

    def server(self, *flags, base=None, wrapper="", ports=None, **options):
        """The embedded server with the model `m`, once it answers."""
        ports = ports or {"port": free_port(), "rest": free_port()}
        command = [wrapper] * bool(wrapper) + ["serving.model_server", f"--port={ports['port']}"]
        command += [f"--rest_api_port={ports['rest']}", "--model_name=m", f"--model_base_path={base or self.models}"]
        command += ["--file_system_poll_wait_seconds=1", "--max_num_load_retries=0"]
        command += [f"--rest_api_timeout_in_ms={PATIENCE_S * 1000:.0f}", *flags]
        process = self.started(*command, log="server", **ports, **options)
        wait_for(
            lambda: not process.runs or status_of(process.rest, "/v1/models/m") == 200,
            "the server starts",
            3 * PATIENCE_S,
        )
        assert process.runs, f"the server ended: {process.last_line}"
        return process

    def gateway(self, target, *flags, wrapper="", port=0, live=True, **options):
        """The gateway in front of `target`, once it answers (and once the model is there, unless `live` is False)."""
        port = port or free_port()
        command = [wrapper] * bool(wrapper) + ["serving.gateway", f"--target={target}", "--model=m", f"--port={port}"]
        process = self.started(*command, f"--timeout_s={PATIENCE_S}", *flags, log="gateway", http=port, **options)
        wait_for(lambda: status_of(port, "/health") in ((200,) if live else (200, 503)), "the gateway starts")
        return process

    def server_and_gateway(self, base=None, **options):
        """Both, and the ports of both, as `load` and `answers` take them."""
        server = self.server(base=base, **options)
        gateway = self.gateway(server.target, **options)
        return server, gateway, server.ports | gateway.ports

    def score(self, server, output, rows=20_000, **options):
        """A scoring job of so many texts at the server."""
        texts = self.folder / "texts.txt"
        if not texts.exists():
            texts.write_text("".join(f"{'a word ' * (number % 50)}{number}\n" for number in range(rows)))
        command = ["serving.score", f"--target={server.target}", "--model=m", "--version=1"]
        flags = [f"--input={texts}", f"--output_dir={output}", "--max_batch_tokens=1024", "--timeout_s=20"]
        return self.started(*command, *flags, log=f"score-{output.name}", **options)

    def scored(self, server, output):
        """The table of a job that runs to its end."""
        process = self.score(server, output)
        assert process.wait() == 0, f"scoring ended: {process.last_line}"
        return (output / "texts.jsonl").read_bytes()

    @contextlib.contextmanager
    def scoring(self, output):
        """A server for a job that the block breaks off: continued, it must give the table of a whole job."""
        server = self.server()
        whole = self.scored(server, self.folder / "whole")
        yield server
        assert self.scored(server, output) == whole, "the table differs"


def check_ends_in_a_line(job):
    """Waits for a job that cannot go on: it ends with a status and a line."""
    status = job.wait()
    assert status != 0 and "Traceback" not in job.log.read_text(), f"status {status}: {job.last_line[:100]}"


def state_of(server, version):
    """Returns the state of a version of the model, "" if it has none."""
    with Client(server.target, "m", timeout_s=10) as client:
        return {one.version: one.state for one in client.status()}.get(version, "")


def status_of(port, path):
    return ask(port, path, None)[0]


def ask(port, path, body):
    """Status, headers and body of the answer to a GET, or with a body to a POST, on a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


@dataclass
class Counts:
    """What clients got: good answers, refusals that say when to come again, lost connections, and what is wrong."""

    good: int = 0
    refused: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)

    def wait_for_more(self, good, what):
        """Waits until so many more answers are good."""
        before = self.good
        wait_for(lambda: self.good > before + good, what)

    def check_all_answered(self):
        """Fails if a request was lost or refused."""
        assert not self.lost and not self.refused, str(self)


@contextlib.contextmanager
def load(ports, clients=1):
    """So many clients at each of these ports, each on a thread, until the block ends; the first answers precede it.

    An answer counts as good if it is right, and as refused if it is a 429 or a 503 with Retry-After, or UNAVAILABLE or
    RESOURCE_EXHAUSTED. A wrong answer fails the test at the end of the block.
    """
    counts, stop, lock = Counts(), threading.Event(), threading.Lock()
    askers = [functools.partial(_ASKERS[kind], port) for kind, port in ports.items()] * clients

    def repeat(asker):
        while not stop.is_set():
            try:
                outcome = asker()
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            with lock:
                if outcome in ("good", "refused", "lost"):
                    setattr(counts, outcome, getattr(counts, outcome) + 1)
                else:
                    counts.wrong.append(outcome[:200])
            stop.wait(0.005 if outcome == "good" else 0.1)

    threads = [threading.Thread(target=repeat, args=(asker,)) for asker in askers]
    for thread in threads:
        thread.start()
    try:
        counts.wait_for_more(20, "the load is answered")
        yield counts
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not counts.wrong, f"{len(counts.wrong)} wrong, such as {counts.wrong[:1]}"


TEXT = "a text of 21 letters!"


def _is_right(vector):
    return len(vector) == 2 and vector[0] == len(TEXT) and vector[1] >= 1 and vector[1] == int(vector[1])


def _ask_grpc(port):
    try:
        with Client(f"127.0.0.1:{port}", "m", timeout_s=PATIENCE_S) as client:
            vector = client.predict({"text": np.array([TEXT], object)})["embedding"][0].tolist()
    except ServingError as error:
        if error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
            return "refused"
        if error.code is grpc.StatusCode.CANCELLED:
            return "lost"
        raise
    return "good" if _is_right(vector) else f"wrong answer {vector}"


def _ask_rest(port):
    return _ask_http(
        port, "/v1/models/m:predict", {"instances": [TEXT]}, lambda answer: _is_right(answer["predictions"][0])
    )


def _ask_gateway(port):
    body = {"inputs": TEXT, "normalize": False}
    return _ask_http(port, "/embed", body, lambda answer: _is_right(answer[0]))


def _ask_http(port, path, body, is_right):
    try:
        status, headers, content = ask(port, path, json.dumps(body).encode())
    except (ConnectionError, http.client.BadStatusLine):
        return "lost"
    if status == 200:
        return "good" if is_right(json.loads(content)) else f"wrong answer {content[:100]!r}"
    if status in (429, 503) and ("retry-after" in headers or path.startswith("/v1/models")):
        return "refused"
    return f"HTTP {status}: {content[:150]!r}"


# By the names of the ports: gRPC and REST of the server, and the gateway's.
_ASKERS = {"port": _ask_grpc, "rest": _ask_rest, "http": _ask_gateway}


def answers(ports):
    """Whether a request at each of these ports is answered right, now."""
    return all(_ASKERS[kind](port) == "good" for kind, port in ports.items())
