"""The notebooks run, and end with what they promise."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


@pytest.fixture
def executed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(ROOT / "examples" / "finetune.ipynb", as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": tmp_path}}).execute(env=dict(os.environ))
    if target := os.environ.get("ALBERT_TF_WRITE_NOTEBOOKS"):
        nbformat.write(notebook, target)
    return notebook


def test_finetune(executed, tmp_path):
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    accuracy = float(text.split("held-out accuracy ")[1].split()[0])
    # Whoever only counts words is right three times in four at most.
    assert accuracy > 0.85
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (tmp_path / "reviews" / "task.json").is_file()
