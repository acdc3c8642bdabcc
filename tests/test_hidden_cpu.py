"""What goes by the CPU passes on one with AVX2 alone too: here oneDNN and our own code are made to see no more."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SENSITIVE = (
    "tests/serving/inference",
    "tests/serving/exportable/test_cpu_check.py",
    "tests/serving/test_export.py",
    "tests/serving/test_export_files.py",
    "tests/serving/test_litert.py",
    "tests/serving/model_server/test_exports.py",
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_that_goes_by_the_cpu_passes_with_avx2_alone(tmp_path):
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text("processor\t: 0\nflags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 avx f16c fma avx2\n")
    hidden = {"ALBERT_TF_CPUINFO": str(cpu_info), "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *SENSITIVE]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | hidden, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:]
    # Were nothing hidden, nothing would be skipped.
    assert "bfloat16 products need a CPU with AVX-512" in ended.stdout
