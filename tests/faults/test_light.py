"""LiteRT versions: an export that is killed or meets a full disk, and two processes on one folder."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving.client import Client
from serving.lite import LiteModel
from serving.manifest import versions_of
from tests.albert_tf.search_model import made
from tests.faults.stage import wait_for
from tests.faults.test_disks import disk
from tests.servers import WITHOUT_TENSORFLOW, running_light_server

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]
TEXTS = ["a good film", "the cat", "good " * 30]


def export(model: Path, output: Path) -> list[str]:
    command = ["serving.export", f"--model={model}", f"--output_dir={output}", "--engine=litert", "--inputs=text"]
    return [sys.executable, "-m", *command]


def test_a_killed_export_leaves_no_version_and_the_next_one_removes_what_it_left(stage, tmp_path):
    model, output = made(tmp_path / "model"), tmp_path / "out"
    process = subprocess.Popen(export(model, output), stderr=subprocess.DEVNULL)
    wait_for(lambda: bool(list(output.glob(".writing-*/model.tflite"))), "the model's file is written")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not versions_of(output) and list(output.glob(".writing-*"))
    done = subprocess.run(export(model, output), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in output.iterdir()] == ["1"]
    assert len(LiteModel(output).encode(TEXTS)) == len(TEXTS)


def test_an_export_onto_a_full_disk_ends_in_one_line_and_leaves_no_version(stage, tmp_path):
    model = made(tmp_path / "model")
    with disk(tmp_path / "disk", 16) as small:
        done = subprocess.run(export(model, small / "out"), capture_output=True, text=True)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert "No space left" in done.stderr.splitlines()[-1]
        assert not list((small / "out").iterdir())


ANSWER = f"""{WITHOUT_TENSORFLOW}
import json
from serving.lite import LiteModel
model = LiteModel(sys.argv[1])
print(json.dumps([model.encode(json.loads(sys.argv[2]), normalize=False).tolist() for _ in range(20)]))
"""


def test_two_processes_and_a_server_answer_from_one_folder_with_the_same_bits(stage, tmp_path):
    model, output = made(tmp_path / "model"), tmp_path / "out"
    subprocess.run(export(model, output), check=True, capture_output=True)
    command = [sys.executable, "-c", ANSWER, str(output), json.dumps(TEXTS)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with (
        running_light_server(output, "m", tmp_path) as ports,
        Client(f"127.0.0.1:{ports['grpc_port']}", "m") as client,
    ):
        served = [client.predict({"text": np.array(TEXTS, object)})["embedding"] for _ in range(20)]
    found = [np.array(json.loads(process.communicate(timeout=300)[0]), np.float32) for process in started]
    assert all(np.array_equal(answers, np.stack(served)) for answers in found)
