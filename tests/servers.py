"""Servers for a `with` block: of models the real one if it is on the PATH, else the embedded one; and the gateway."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

from serving.client import Client, ServingError
from tfrecords.base.errors import UserError
from tfrecords.base.files import replacing
from tfrecords.base.machine.processes import interrupts_deferred, interrupts_held_back

START_TIMEOUT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def free_ports():
    """Three of them by the flags of serving.start."""
    return {flag: free_port() for flag in ("port", "grpc_port", "rest_api_port")}


def server_command(models, folder, port, rest_api_port=0):
    """The command that serves `models` (name to base path); writes its model config file into `folder`."""
    config = folder / "models.config"
    with replacing(config) as temporary:
        temporary.write_text(config_of(models), encoding="utf-8")
    real = shutil.which("tensorflow_model_server")
    program = [real] if real else [sys.executable, "-m", "serving.model_server"]
    rest = [f"--rest_api_port={rest_api_port}"] if rest_api_port else []
    return [*program, f"--port={port}", *rest, f"--model_config_file={config}"]


def config_of(models):
    """Returns the text of a model config file for models by name and base path."""
    entries = [
        f'  config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in models.items()
    ]
    return "\n".join(["model_config_list {", *entries, "}", ""])


def post(url, body):
    """Returns the JSON that a server answers to a body of JSON."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


@contextlib.contextmanager
def running_server(models, folder, port, rest_api_port=0):
    """Starts the server, waits until every model answers, yields "host:port", and ends the server whatever happens.

    Ctrl-C does not reach the server, which would otherwise be gone before its clients know why.
    """
    log, target = folder / "server.log", f"127.0.0.1:{port}"
    with _running(server_command(models, folder, port, rest_api_port), log) as process:
        _wait(process, log, {name: lambda name=name: _answers(target, name) for name in models})
        yield target


@contextlib.contextmanager
def running_gateway(target, model, folder, port, *flags):
    """The gateway in front of models, by commas, of the server at `target`; yields its address once it answers."""
    log, url = folder / "gateway.log", f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "serving.gateway", f"--target={target}", f"--model={model}", f"--port={port}"]
    command += flags
    with _running(command, log) as process:
        _wait(process, log, {"gateway": lambda: _is_healthy(url)})
        yield url


# Neither of them can be imported.
WITHOUT_TENSORFLOW = """
import sys
sys.modules |= dict.fromkeys(("tensorflow", "tensorflow_serving", "tensorflow_text", "keras", "numba", "albert_tf"))
"""


@contextlib.contextmanager
def running_light_server(models, name, folder):
    """The light server of LiteRT versions with its gateway, without TensorFlow; yields its ports by flag."""
    ports = free_ports()
    command = [sys.executable, "-c", f"{WITHOUT_TENSORFLOW}\nfrom serving.lite.start import run\nrun()"]
    command += [f"--folder={models}", f"--name={name}", *(f"--{flag}={port}" for flag, port in ports.items())]
    log, url = folder / "light.log", f"http://127.0.0.1:{ports['port']}"
    with _running(command, log) as process:
        _wait(process, log, {name: lambda: _is_healthy(url)})
        yield ports


@contextlib.contextmanager
def _running(command, log):
    with contextlib.ExitStack() as stack:
        with interrupts_deferred(), interrupts_held_back(), open(log, "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(_end, process)
        yield process


def _end(process):
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(process, log, answers):
    deadline = time.monotonic() + START_TIMEOUT_S
    waiting = dict(answers)
    while waiting:
        if process.poll() is not None or time.monotonic() > deadline:
            last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
            state = f"ended with status {process.returncode}" if process.returncode is not None else "does not answer"
            raise UserError(f"the server of {', '.join(waiting)} {state}; its last words in {log}: {last}")
        time.sleep(0.2)
        waiting = {name: answered for name, answered in waiting.items() if not answered()}


def _answers(target, name):
    with Client(target, name, timeout_s=5) as client:
        try:
            return any(version.state == "AVAILABLE" for version in client.status())
        except ServingError:
            return False


def _is_healthy(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
