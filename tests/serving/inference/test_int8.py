"""8-bit products that are exact on every x86, with and without instructions that add them up in 32 bits."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving import cpu
from serving.inference import InferenceOptions, make_encoder
from serving.inference.int8 import QuantizedDense
from tests.serving.inference.encoders import make_keras
from tfrecords.base.errors import UserError

WEIGHTS = st.floats(-10, 10, width=32) | st.sampled_from([-1.0, 1.0])


@settings(max_examples=50, deadline=None)
@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=WEIGHTS))
def test_sums_of_two_products_fit_into_16_bits(kernel):
    dense = QuantizedDense(kernel, np.zeros(kernel.shape[1], np.float32))
    stored = dense.kernel.numpy().astype(int)
    padded = np.pad(stored, ((0, len(stored) % 2), (0, 0))).reshape(-1, 2, stored.shape[1])
    for sign in (1, -1):
        assert 255 * np.maximum(sign * padded, 0).sum(axis=1).max() <= np.iinfo(np.int16).max
    assert (np.abs(stored * (dense.range / 127) - kernel) <= 0.501 * dense.range / 127 + 1e-12).all()


def test_a_large_weight_beside_small_ones_keeps_its_8_bits():
    kernel = np.array([[1.0], [0.0], [0.5], [-0.5], [0.25]], np.float32)
    dense = QuantizedDense(kernel, np.zeros(1, np.float32))
    assert dense.kernel.numpy()[:, 0].tolist() == [127, 0, 64, -64, 32]


SLOW = [pytest.param(isa, marks=pytest.mark.slow) for isa in ("SSE41", "AVX", "AVX512_CORE", "AVX2_VNNI", "DEFAULT")]


@pytest.mark.parametrize("isa", ["AVX2", *SLOW])
def test_products_are_exact_on_every_x86(isa):
    """oneDNN reads its instruction set once, so in a process of its own."""
    command = [sys.executable, "-m", "tests.serving.inference.exact_products"]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    errors = dict(line.split() for line in process.stdout.splitlines()[-4:])
    assert max(float(errors[f"int8/{kind}"]) for kind in ("signed", "unsigned")) < 1e-6
    if isa in ("SSE41", "AVX", "AVX2"):
        # Or the test above would be of a CPU that never clips.
        assert min(float(errors[f"int8_vnni/{kind}"]) for kind in ("signed", "unsigned")) > 0.05


def test_a_gated_equilibrium_has_the_range_of_its_gates_inputs():
    twin = make_encoder(make_keras(equilibrium_solver="fixed_point", feed_forward="glu"), InferenceOptions("int8"))
    assert twin.feed_forwards[0].ranges.shape == (4, 2)


def test_int8_vnni_is_refused_where_it_would_answer_wrong(monkeypatch):
    monkeypatch.setattr("serving.inference.options.has_vnni", lambda: False)
    with pytest.raises(UserError, match="neither avx512_vnni nor avx_vnni; choose int8"):
        make_encoder(make_keras(num_hidden_layers=1), InferenceOptions("int8_vnni"))


def test_vnni_is_read_from_the_flags(tmp_path):
    info = tmp_path / "cpuinfo"
    for flags, expected in (("avx2 avx512f avx512bw", False), ("avx2 avx_vnni", True), ("avx512_vnni", True)):
        info.write_text(f"processor : 0\nflags : fpu {flags}\n")
        assert cpu.has_vnni(info) is expected
