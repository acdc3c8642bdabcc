"""LiteRT versions: an export that is killed or meets a full disk, and two processes on one folder."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from serving.client import Client
from serving.lite import LiteModel
from serving.manifest import versions_of
from tests.albert_tf.search_model import made
from tests.conftest import ROOT
from tests.faults.test_disks import disk
from tests.refusals import refused
from tests.servers import WITHOUT_TENSORFLOW, running_light_server

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]
TEXTS = ["a good film", "the cat", "good " * 30]


# Once the model's file is written, and not yet the tokenizer's.
KILLED = """
import os, signal
from serving.export import run
from serving.litert import writing
writing.write_tokenizer = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
run()
"""


def export(model, output, *python):
    flags = [f"--model={model}", f"--output_dir={output}", "--engine=litert", "--inputs=text"]
    command = [sys.executable, *(python or ("-m", "serving.export")), *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_a_killed_export_leaves_no_version_and_the_next_one_removes_what_it_left(tmp_path):
    model, output = made(tmp_path / "model"), tmp_path / "out"
    assert export(model, output, "-c", KILLED).returncode == -signal.SIGKILL
    assert not versions_of(output) and list(output.glob(".writing-*/model.tflite"))
    with refused(r"litert\.json"):
        LiteModel(output)
    done = export(model, output)
    assert done.returncode == 0 and "XNNPACK" not in done.stderr, done.stderr
    assert [path.name for path in output.iterdir()] == ["1"]
    assert len(LiteModel(output).encode(TEXTS)) == len(TEXTS)


def test_an_export_onto_a_full_disk_ends_in_one_line_and_leaves_no_version(tmp_path):
    model = made(tmp_path / "model")
    with disk(tmp_path / "disk", 16) as small:
        done = export(model, small / "out")
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("error: the disk is full")
        assert not list((small / "out").iterdir())


ANSWER = f"""{WITHOUT_TENSORFLOW}
import json
from serving.lite import LiteModel
model = LiteModel(sys.argv[1])
print(json.dumps([model.encode(json.loads(sys.argv[2]), normalize=False).tolist() for _ in range(20)]))
"""


def test_two_processes_and_a_server_answer_from_one_folder_with_the_same_bits(tmp_path):
    model, output = made(tmp_path / "model"), tmp_path / "out"
    assert export(model, output).returncode == 0
    command = [sys.executable, "-c", ANSWER, str(output), json.dumps(TEXTS)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with running_light_server(output, "m", tmp_path) as ports, Client(f"127.0.0.1:{ports['grpc_port']}", "m") as client:
        served = [client.predict({"text": np.array(TEXTS, object)})["embedding"] for _ in range(20)]
    found = [np.array(json.loads(process.communicate(timeout=300)[0]), np.float32) for process in started]
    assert all(np.array_equal(answers, np.stack(served)) for answers in found)
