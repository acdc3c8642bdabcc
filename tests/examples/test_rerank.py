"""examples/rerank.py in front of model servers without models."""

import subprocess
import sys

import numpy as np

from serving.client.tasks import relevance
from tests.conftest import ROOT
from tests.serving.gateway.conftest import PAIR, STRINGS, FakeModel, logits, vector
from tests.stand_in import StandIn

TEXTS = [f"passage {number} {'of many words ' * (number % 3)}" for number in range(20)]


def test_the_nearest_passages_are_put_in_order(tmp_path):
    path = tmp_path / "passages.txt"
    path.write_text("\n".join([*TEXTS, "", " "]))
    signatures = {"serving_default": (STRINGS, {"embedding": (1, 2)}), "pair": (PAIR, {"value": (1, 1)})}
    with StandIn(FakeModel("both"), signatures=signatures) as server:
        command = [sys.executable, "examples/rerank.py", f"--target={server.target}", "--embedder=default"]
        command += ["--reranker=default", f"--text_file={path}", "--query=q", "--candidates=6", "--top=2"]
        ended = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    asked = vector(b"q") / np.linalg.norm(vector(b"q"))
    cosines = {text: vector(text.encode()) @ asked / np.linalg.norm(vector(text.encode())) for text in TEXTS}
    nearest = sorted(TEXTS, key=lambda text: -cosines[text])[:6]
    scores = {text: relevance(logits([b"q", text.encode()])[:1])[0] for text in nearest}
    best = sorted(nearest, key=lambda text: -scores[text])[:2]
    expected = [f"{scores[text]:.3f}  (cosine {cosines[text]:.3f})  {text}" for text in best]
    assert ended.stdout.splitlines() == expected
