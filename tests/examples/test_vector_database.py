"""examples/vector_database.py with Qdrant in a folder."""

import os
import subprocess
import sys

import numpy as np
import pytest

import albert_tf
from tests.albert_tf.search_model import TEXTS, made
from tests.conftest import ROOT

pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install qdrant-client")


@pytest.mark.usefixtures("eagerly")
def test_a_database_is_filled_once_and_asked_again(tmp_path):
    """Two processes that import TensorFlow take more than 5 s."""
    folder, path = made(tmp_path / "model", prompts={"query": "the ", "passage": "a "}), tmp_path / "passages.txt"
    path.write_text("\n".join([*TEXTS, "", " "]))
    command = [sys.executable, "examples/vector_database.py", f"--model={folder}", f"--database={tmp_path}/database"]
    loaded, said = albert_tf.load(folder), []
    for more in ([f"--text_file={path}"], ["--query=bad film", "--top=3"]):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        ended = subprocess.run([*command, *more], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        said.append(ended.stdout.splitlines())
    scores = loaded.encode_document(TEXTS) @ loaded.encode_query("bad film")
    best = np.argsort(-scores, kind="stable")[:3]
    assert said == [[], [f"{scores[number]:.2f}  {TEXTS[number]}" for number in best]]
