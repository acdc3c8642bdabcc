"""`python -m serving.gateway`: starts without TensorFlow, says where it answers, ends well."""

import signal
import subprocess
import sys

import httpx
import pytest

from scripts.server import free_port
from tests.conftest import ROOT
from tests.serving.gateway.conftest import wait_until


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "serving.gateway", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_it_serves_until_it_is_told_to_stop(fake_server):
    _, stand_in = fake_server("embedder")
    port = free_port()
    with command(f"--target={stand_in.target}", "--model=default", f"--port={port}") as process:
        assert process.stdout.readline() == f"answering at http://127.0.0.1:{port}/docs; Ctrl-C stops\n"
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0 and "model default version 1: embed, tokenize" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model=NAME must be given"),
        (["--model=m", "--target=nowhere"], "target 'nowhere' is not HOST:PORT"),
        (["--model=m", "--max_in_flight=0"], "--max_in_flight=0 must be 1 or more"),
    ],
)
def test_wrong_flags_are_one_line(arguments, message):
    with command(*arguments) as process:
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and said.startswith(f"error: {message}") and said.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(fake_server):
    _, stand_in = fake_server("embedder")
    taken = stand_in.target.rpartition(":")[2]
    with command("--model=m", f"--port={taken}") as process:
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and f"cannot listen on 127.0.0.1:{taken}: Address already in use" in said


def test_it_starts_without_tensorflow():
    code = "import sys; sys.modules['tensorflow'] = None; import serving.gateway.server, serving.gateway.__main__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_without_its_extra_it_says_what_to_install():
    code = "import sys, runpy; sys.modules['starlette'] = sys.modules['starlette.applications'] = None; "
    code += "sys.argv[1:] = ['--model=m']; runpy.run_module('serving.gateway', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "pip install 'albert-tf[gateway]'" in ended.stderr
    assert "Traceback" not in ended.stderr
