import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfrecords

CODE = """
import numpy as np
from tfrecords.examples.segments import single_spans
splits = np.arange(200)
print(single_spans(splits, np.array([0, 199]), np.array([7], np.uint64), 20, 0.9)[0].tolist())
"""


def run(folder):
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_a_change_in_a_called_kernels_file_is_noticed(tmp_path):
    source = Path(tfrecords.__file__).parent
    shutil.copytree(source, tmp_path / "tfrecords", ignore=shutil.ignore_patterns("__pycache__"))
    first = run(tmp_path)
    assert list(tmp_path.glob("tfrecords/__pycache__/numba-*/*/*.nbi"))
    assert run(tmp_path) == first
    changed = tmp_path / "tfrecords/examples/randomness.py"
    text = changed.read_text()
    changed.write_text(text.replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    assert changed.read_text() != text
    assert run(tmp_path) != first
