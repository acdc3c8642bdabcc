"""8-bit products that are exact on every x86, with and without instructions that add them up in 32 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.inference.int8 import QuantizedDense

WEIGHTS = st.floats(-10, 10, width=32) | st.sampled_from([-1.0, 1.0])


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
def test_products_are_exact_on_every_x86(isa, run_module):
    """oneDNN reads its instruction set at its first product, so in a process that has made none."""
    ended = run_module("tests.serving.inference.exact_products", variables={"ONEDNN_MAX_CPU_ISA": isa})
    assert ended.returncode == 0, ended.stderr
    errors = dict(line.split() for line in ended.stdout.splitlines()[-4:])
    assert max(float(errors[f"int8/{kind}"]) for kind in ("signed", "unsigned")) < 1e-6
    if isa in ("SSE41", "AVX", "AVX2"):
        # Or the test above would be of a CPU that never clips.
        assert min(float(errors[f"wide/{kind}"]) for kind in ("signed", "unsigned")) > 0.05
