"""What the two wheels hold, what they ask for, and the client's alone at work; built without a network."""

import email
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from albert_tf.loading.load import load
from serving.export import ExportSettings, export
from tests.albert_tf.search_model import made
from tests.conftest import ROOT
from tfrecords.base.version import VERSION


def build(source, folder):
    """The wheel of a copy of `source` within a copy of the tree: setuptools leaves its traces where it builds."""
    names = ["pyproject.toml", "README.md", "LICENSE", "client", "serving", "tfrecords", "albert_tf"]
    names += ["requirements.txt", "requirements"]
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in names), str(folder)], check=True)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, str(folder / "dist")]
    built = subprocess.run(command, capture_output=True, text=True, cwd=folder / source)
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(".", tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory):
    return build("client", tmp_path_factory.mktemp("client"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def requirements(metadata):
    return [Requirement(line) for line in metadata.get_all("Requires-Dist")]


def pins_of(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_wheel_has_three_packages_with_all_their_files(wheel):
    names = contents(wheel)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"albert_tf", "serving", "tfrecords"}
    kept = [path for package in ("albert_tf", "serving", "tfrecords") for path in (ROOT / package).rglob("*")]
    expected = {str(path.relative_to(ROOT)) for path in kept if path.is_file() and "__pycache__" not in path.parts}
    assert expected - names == set()
    assert {"serving/deploy/kubernetes/deployment.yaml", "serving/gateway/page/page.html"} <= names


def test_metadata_and_the_citation_are_of_this_version(wheel):
    metadata = metadata_of(wheel)
    assert (metadata["Name"], metadata["License-Expression"]) == ("albert-tf", "Apache-2.0")
    assert metadata.get_payload().startswith("# albert-tf")
    assert "tensorflow" in {requirement.name for requirement in requirements(metadata) if not requirement.marker}
    assert set(metadata.get_all("Provides-Extra")) == {
        *("test", "ray", "jax", "peers", "docs", "gateway", "parquet", "browser", "folders"),
        *("search", "fuzz", "keras-hub", "remote", "tensorboard"),
    }
    assert metadata["Version"] == VERSION
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"- name: {metadata['Author']}\n" in citation and f"\nversion: {VERSION}\n" in citation
    assert metadata.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/1909.11942"]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements/lowest.txt"])
def test_ranges_hold_what_was_tried_at_their_ends(wheel, name):
    ranges = {one.name: one.specifier for one in requirements(metadata_of(wheel)) if not one.marker}
    pins = pins_of(name)
    assert pins.keys() == ranges.keys()
    assert [package for package, version in pins.items() if version not in ranges[package]] == []
    if name == "requirements/lowest.txt":
        lowest = {package: next(s for s in specifiers if s.operator == ">=") for package, specifiers in ranges.items()}
        assert all(Version(lowest[package].version) == Version(version) for package, version in pins.items())


def test_client_wheel_asks_for_nothing_large(wheel, client_wheel):
    metadata = metadata_of(client_wheel)
    assert metadata["Version"] == metadata_of(wheel)["Version"] and metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("/LICENSE") for name in contents(client_wheel))
    wanted = requirements(metadata)
    own = [one for one in wanted if not one.marker]
    light = [one for one in wanted if one.marker and one.marker.evaluate({"extra": "lite"})]
    assert {requirement.name for requirement in own} == {"grpcio", "protobuf", "numpy", "absl-py"}
    assert {requirement.name for requirement in light} == {"ai-edge-litert", "tokenizers", "sentencepiece"}
    server = [one for one in wanted if one.marker and one.marker.evaluate({"extra": "serve"})]
    assert {requirement.name for requirement in server} == {
        *("albert-tf-client", "grpcio-health-checking", "httptools", "msgspec", "prometheus-client", "starlette"),
        "uvicorn",
    }
    pins = pins_of("requirements.txt") | pins_of("requirements/gateway.txt") | {"albert-tf-client": VERSION}
    for requirement in (*own, *light, *server):
        assert pins[requirement.name] in requirement.specifier, "the client is tested with what the library pins"


@pytest.fixture(scope="module")
def alone(client_wheel, tmp_path_factory):
    """alone(code, packages): the output of code beside the unpacked client and these packages; other imports fail."""
    folder = tmp_path_factory.mktemp("alone")
    with zipfile.ZipFile(client_wheel) as archive:
        archive.extractall(folder)

    def run(code, *packages):
        allowed = {"numpy", "absl", "serving", "tfrecords", *packages, *sys.stdlib_module_names}
        refuse = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {allowed!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import serving
assert serving.__file__.startswith({str(folder)!r}), serving.__file__
"""
        command = [sys.executable, "-c", refuse + code]
        environment = os.environ | {"PYTHONPATH": str(folder)}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)

    return run


# Of grpcio, and of ai-edge-litert and tokenizers.
GRPC = "grpc", "google", "typing_extensions", "cygrpc"
LITERT = "ai_edge_litert", "tokenizers", "tqdm"


def test_client_wheel_works_alone(alone):
    code = """
import serving.client.__main__
from serving.client import AsyncClient, Client, ServingError
try:
    Client("127.0.0.1:1", "x", timeout_s=1).status()
except ServingError as error:
    print(error.code.name)
"""
    asked = alone(code, *GRPC)
    assert asked.stdout.strip() == "UNAVAILABLE", asked.stderr


def test_client_wheel_answers_texts_with_litert_alone(alone, tmp_path):
    """Importing grpc, tensorflow, keras, numba or albert_tf fails."""
    folder = made(tmp_path / "model")
    version = export(ExportSettings(str(folder), str(tmp_path / "exported"), engine="litert", inputs="text"))
    code = f"""
sys.argv = ["albert-client", "ask", "--folder={version}", "a good film", "--json"]
from serving.commands import run
run()
"""
    asked = alone(code, *LITERT)
    expected = load(folder).predict("a good film")
    np.testing.assert_allclose(json.loads(asked.stdout or asked.stderr), expected, atol=2e-4)
    assert asked.stderr == ""


def test_the_client_wheel_has_all_of_the_light_server(alone):
    others = "uvicorn", "httptools", "msgspec", "starlette", "prometheus_client", "grpc_health", "ml_dtypes"
    of_others = "anyio", "sniffio", "click", "h11", "flatbuffers", "typing_extensions", "idna", "yaml", "dotenv"
    code = "import serving.model_server.__main__, serving.gateway.__main__, serving.gateway.app, serving.lite.start"
    assert alone(code, *GRPC, *LITERT, *others, *of_others).stderr == ""
