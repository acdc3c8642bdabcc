"""Other packages of a user's environment, imported before and after this library: same numbers, no crash.

The slow group `packages` installs each of them beside this library, for every Python that it supports and finds.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("python3.11", "python3.12", "python3.13")
# The name to import, and what pip calls it if that differs.
PACKAGES = {
    "torch": "torch",
    "transformers": "transformers",
    "sentence_transformers": "sentence-transformers",
    "datasets": "datasets",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "sklearn": "scikit-learn",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "cv2": "opencv-python-headless",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "jax": "jax",
    "spacy": "spacy",
    "faiss": "faiss-cpu",
    "fastapi": "fastapi",
    "mlflow": "mlflow-skinny",
    "ray": "ray",
    "polars": "polars",
    "langchain_core": "langchain-core",
    "peft": "peft",
    "evaluate": "evaluate",
}
COMPUTED = """
import numpy, albert_tf, keras
keras.utils.set_random_seed(1)
config = albert_tf.AlbertConfig.named("albert_tiny").replace(num_hidden_layers=2)
rows = {"input_ids": numpy.array([[101, 7, 9, 102]])}
answer = float(albert_tf.AlbertEncoder(config)(rows)["pooled_output"][0, 0])
"""


@pytest.fixture(scope="module", params=PYTHONS)
def environment(request, tmp_path_factory):
    """An environment with this library's dependencies; installs further packages on request."""
    interpreter = shutil.which(request.param)
    if not interpreter or subprocess.run([interpreter, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{request.param} is not installed here")
    place = tmp_path_factory.mktemp(request.param)
    subprocess.run([interpreter, "-m", "venv", place], check=True)
    python = str(place / "bin" / "python")

    def install(*packages):
        command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "requirements.txt"]
        done = subprocess.run([*command, *packages], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]

    def run(program):
        done = subprocess.run([python, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        return done.stdout.splitlines()[-1]

    install("-r", ROOT / "requirements.txt")
    yield install, run, run(f"{COMPUTED}\nprint(answer)")
    shutil.rmtree(place)


@pytest.mark.slow("packages")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_beside_this_library_changes_no_number(environment, package):
    install, run, alone = environment
    install(PACKAGES[package])
    assert run(f"import {package}\n{COMPUTED}\nprint(answer)") == alone
    assert run(f"{COMPUTED}\nimport {package}\nprint(answer)") == alone
