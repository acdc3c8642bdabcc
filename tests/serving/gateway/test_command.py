"""`python -m serving.gateway`: starts without TensorFlow, says where it answers, ends well."""

import resource
import signal
import subprocess
import sys

import httpx

from tests.conftest import ROOT
from tests.servers import free_port
from tests.serving.gateway.conftest import wait_until


def lower():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_it_serves_until_it_is_told_to_stop(fake_server, tmp_path):
    """After SIGHUP it writes to a new log."""
    _, stand_in = fake_server("embedder")
    port = free_port()
    flags = [f"--target={stand_in.target}", "--model=default", f"--port={port}", f"--access_log={tmp_path}/log"]
    command = [sys.executable, "-m", "serving.gateway", *flags]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lower
    ) as process:
        assert process.stdout.readline() == f"answering at http://127.0.0.1:{port}/; Ctrl-C stops\n"
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        # Idle clients do not use up the usual limit of open files.
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        for _ in range(2):
            assert httpx.get(f"http://127.0.0.1:{port}/info").status_code == 200
            wait_until(lambda: (tmp_path / "log").exists() and "/info" in (tmp_path / "log").read_text())
            if not (tmp_path / "log.1").exists():
                (tmp_path / "log").rename(tmp_path / "log.1")
                process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert [(tmp_path / name).read_text().count("/info") for name in ("log", "log.1")] == [1, 1]
    assert (
        process.returncode == 0
        and "model default version 1 is ready: embed, tokenize" in said
        and "Traceback" not in said
    )


def test_without_its_extra_it_says_what_to_install():
    code = "import sys, runpy; sys.modules['starlette'] = sys.modules['starlette.applications'] = None; "
    code += "sys.argv[1:] = ['--model=m']; runpy.run_module('serving.gateway', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "pip install '.[gateway]'\n" in ended.stderr
    assert "Traceback" not in ended.stderr
