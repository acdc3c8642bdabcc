"""The main job as a newcomer runs it: interrupted while serving, and finished by a second run.

By default its stages are tested one by one: `tiny_data` and `tiny_run` are its first ones, by their commands.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.servers import free_port

# Ten steps are compiled quickly rather than well.
ENVIRONMENT = os.environ | {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "PYTHONPATH": str(ROOT),
    # Not even then does a stranger see TensorFlow's notes of its start.
    "TF_CPP_MIN_LOG_LEVEL": "0",
}


SMALL = {"num_hidden_layers": 1, "embedding_size": 8, "hidden_size": 16, "intermediate_size": 32}


@pytest.fixture
def clone(tmp_path):
    """What the quickstart reads in the clone: half of the time would go to compiling the other layers.

    Its corpus has so few documents that one batch evaluates them, and a vocabulary of some 45 pieces.
    """
    place = tmp_path / "clone"
    (place / "scripts").mkdir(parents=True)
    config = json.loads((ROOT / "scripts" / "quickstart_config.json").read_text())
    (place / "scripts" / "quickstart_config.json").write_text(json.dumps(config | SMALL))
    shutil.copy(ROOT / "requirements.txt", place)
    documents = (ROOT / "tests" / "stored" / "corpus.txt").read_text().split("\n\n")
    (place / "corpus.txt").write_text("\n\n".join(documents[:12]) + "\n")
    return place


def flags(folder):
    return ["--steps=10", "--seconds=0.2", f"--port={free_port()}", "--once", f"--output_dir={folder}"]


def quickstart(folder, *arguments, cwd=ROOT, **options):
    command = [sys.executable, "-m", "scripts.quickstart", *flags(folder), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, **pipes, **options)


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def interrupt_while_serving(*arguments, **options):
    """Ctrl-C as a terminal sends it, to every process of the group, once the server answers."""
    process = quickstart(*arguments, start_new_session=True, **options)
    for line in process.stdout:
        assert "oneDNN custom operations" not in line
        if found := re.search(r" serving\.model_server .* --port=(\d+)", line):
            port = int(found[1])
        if found := re.match(r"serving \(process (\d+)", line):
            break
    else:
        pytest.fail("the road ended before it served")
    server = f"/proc/{found[1]}"
    assert is_listening(port)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    return process.returncode, port, server


def assert_complete(folder, output):
    for words in (
        "masked-LM accuracy",
        "trivial baseline",
        "requests/s",
        "history.csv",
        "latency.png",
    ):
        assert words in output
    # Both engines answer.
    right, texts, same = map(int, re.search(r"(\d+) of (\d+) right; (\d+) of \d+ the same by LiteRT", output).groups())
    assert right <= texts and same >= 0.9 * texts > 0 and "LiteRT without TensorFlow, start included" in output
    for name in ("ids", "text"):
        report = json.loads((folder / "benchmark" / name / "report.json").read_text())
        assert [point["length"] for point in report["points"]] == [16, 32, 64, 128]
        # On a busy machine a fifth of a second may pass without an answer.
        assert any(point["latency_ms"]["p50"] for point in report["points"])
        assert not any(point["errors"] for point in report["points"])
        assert (folder / "benchmark" / name / "latency.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "models" / name / "1" / "saved_model.pb").is_file()
    figures = json.loads((folder / "evaluation.json").read_text())
    assert 0 < figures["baseline"]["masked_lm_accuracy"] < 1 and figures["model"]["loss"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_road_interrupted_while_it_serves_goes_on_to_its_end(clone, tmp_path):
    """Each stage is an interpreter of its own."""
    folder = tmp_path / "road"
    status, port, server = interrupt_while_serving(folder, "--corpus=corpus.txt", cwd=clone)
    assert status == 130
    assert not os.path.exists(server) and not is_listening(port)

    second = quickstart(folder, "--corpus=corpus.txt", cwd=clone)
    output, _ = second.communicate(timeout=300)
    assert second.returncode == 0, output[-3000:]
    assert "oneDNN custom operations" not in output
    # Vocabulary, examples, training, evaluation and three exports were done before the interruption.
    assert output.count("kept from before") == 7
    assert_complete(folder, output)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--corpus=nowhere/*.txt"], "error: corpus 'nowhere/*.txt' matches no file"),
        (["--output_dir=/proc/nowhere"], "error: cannot write to output folder '/proc/nowhere'"),
    ],
)
def test_bad_input_is_one_line(run_module, tmp_path, arguments, message):
    done = run_module("scripts.quickstart", *flags(tmp_path / "road"), *arguments, without_tensorflow=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(message) and done.stderr.count("\n") == 1
