"""bfloat16 and int8: a row's answer does not depend on its neighbours; what cannot run is refused."""

import numpy as np
import pytest
import tensorflow as tf

from serving.inference import InferenceOptions, make_encoder, onednn
from tests.refusals import refused
from tests.serving.inference.encoders import (
    CONFIG,
    HAS_AVX512,
    MODERN,
    RELATIVE,
    both,
    compiled,
    features,
    make_batch,
    make_keras,
    needs_avx512,
    require_near,
)
from tfrecords.base.machine.cpu import bfloat16_flags

AVX512 = "avx512f avx512bw avx512vl avx512dq"


@pytest.mark.parametrize(
    "compute, changes",
    [
        pytest.param("bfloat16", {"step_signal": "sinusoid", "norm": "rms_norm"}, marks=needs_avx512),
        ("int8", MODERN | {"norm": "layer_norm"}),
        ("int8", {}),
        pytest.param("bfloat16", {}, marks=(pytest.mark.slow, needs_avx512)),
        *(
            pytest.param(compute, changes, marks=(pytest.mark.slow, *marks))
            for compute, *marks in (("bfloat16", needs_avx512), ("int8",))
            for changes in (MODERN, RELATIVE, {"depth_lora_rank": 2}, {"attention_window": 16})
        ),
    ],
)
def test_an_answer_has_the_same_bits_in_every_batch(compute, changes):
    """Alone and among 1, 5 and 40 rows of other lengths: one product, softmax or layer norm that went another way with
    the number of tokens would be a rounding somewhere, and from there on another answer."""
    rng = np.random.default_rng(0)
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 130}
    encoder = make_encoder(make_keras(**sizes, **changes), InferenceOptions(compute))
    answer = compiled(both(encoder) if changes == {} else encoder, [None, None], [None])
    six = 9, 31, 64, 65, 128, 1
    for lengths in (six[-2:], six, (*six, *rng.integers(1, 130, 35))):
        ids = rng.integers(5, CONFIG.vocab_size, (len(lengths), max(lengths)))
        together = answer(ids, np.array(lengths, "int32"))
        for row, length in enumerate(lengths[:6]):
            alone = answer(ids[row : row + 1, :length], [length])
            for name, values in together.items():
                is_pooled = name.startswith("pooled")
                values = values[row : row + 1] if is_pooled else values[row : row + 1, :length]
                # The pooler's float32 product comes after all rounding; without AVX-512 its last bits go by the batch.
                last_bits = 2e-6 if is_pooled and not HAS_AVX512 else 0
                np.testing.assert_allclose(values, alone[name], rtol=0, atol=last_bits)


def test_sums_that_no_step_normalizes_stay_float32_in_bfloat16():
    """Over many steps rounding would add up."""
    twin, dtypes = make_encoder(make_keras(norm_position="pre"), InferenceOptions("bfloat16", other_cpu=True)), []
    opened = twin.kernels.half_input
    twin.kernels.half_input = lambda *rest: dtypes.append(rest[-1].dtype) or opened(*rest)
    compiled(twin).get_concrete_function(*make_batch()[:2])
    assert set(dtypes) == {tf.float32}


def test_each_8_bit_product_has_the_range_of_its_own_inputs(products_anywhere):
    """Where these are of very different sizes, which matrices before and after undo."""
    encoder, batch = make_keras(num_hidden_layers=1), make_batch()
    (attention,), (feed_forward,) = encoder.halves_of("attention"), encoder.halves_of("feed_forward")
    for layer, factor in (
        *((attention.value, 8), (attention.output_dense, 1 / 8)),
        *((feed_forward.intermediate, 1 / 8), (feed_forward.output_dense, 8)),
    ):
        layer.kernel.assign(factor * layer.kernel)
    found = make_encoder(encoder, InferenceOptions("int8"), batch[:2])(*batch[:3])
    require_near(found, encoder(features(batch)), batch[3], 0.05, np.mean)


def test_int8_block_is_stored_once():
    def sizes(depth):
        encoder = make_encoder(make_keras(num_hidden_layers=depth), InferenceOptions("int8"))
        return sorted(variable.shape.num_elements() for variable in encoder.variables if variable.dtype == tf.int8)

    assert sizes(6) == sizes(2) == sorted([8 * 24, 24 * 72, 24 * 24, 24 * 40, 40 * 24])


@pytest.mark.parametrize(
    "compute, changes, replaced, by, message",
    [
        ("int8", {"hidden_act": "silu"}, None, None, "int8 knows the hidden_act gelu, gelu_erf, relu; .* has 'silu'"),
        ("int8", {}, "onednn.batch_matmul", lambda a, b, transpose_b=False: a, "a kernel .* gives other numbers"),
        ("bfloat16", {}, "onednn.can_run", lambda *_: False, "no AVX-512; choose float32 or int8"),
    ],
)
def test_what_would_fail_or_answer_wrong_here_is_refused(compute, changes, replaced, by, message, monkeypatch):
    if replaced:
        monkeypatch.setattr(f"serving.inference.{replaced}", by)
    encoder = make_keras(num_hidden_layers=1, **changes)
    with refused(message):
        make_encoder(encoder, InferenceOptions(compute))
    if by is not None:
        # It may run where it is served.
        make_encoder(encoder, InferenceOptions(compute, other_cpu=True))


@pytest.mark.parametrize(
    "compute, name",
    [
        ("int8", "_QuantizedMatMul"),
        ("int8", "_MklBatchMatMulV2"),
        pytest.param("bfloat16", "_MklNativeFusedMatMul", marks=needs_avx512),
    ],
)
def test_an_export_that_calls_a_kernel_that_is_gone_is_refused_by_its_name(compute, name, monkeypatch):
    """As if TensorFlow had no op of this name."""
    call = onednn.op_def_library.apply_op

    def apply_op(op, **arguments):
        if op == name:
            raise RuntimeError(f"Unrecognized Op name {op}")
        return call(op, **arguments)

    monkeypatch.setattr(onednn.op_def_library, "apply_op", apply_op)
    with refused(f"{compute} cannot run here: this TensorFlow has not the kernel {name}; .*32$"):
        make_encoder(make_keras(num_hidden_layers=1), InferenceOptions(compute))


@pytest.mark.parametrize(
    "flags, runs",
    [
        ("avx2", ["float32", "int8"]),
        (AVX512, ["float32", "bfloat16", "int8"]),
        # Not all of what oneDNN's products need.
        ("avx512f amx_bf16 avx512_bf16", ["float32", "int8"]),
    ],
)
def test_what_a_cpu_runs_goes_by_its_flags(flags, runs, tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\nflags : fpu {flags}\n")
    assert [one for one in ("float32", "bfloat16", "int8") if onednn.can_run(one, info)] == runs
    assert bool(bfloat16_flags(info)) is ("bf16" in flags) and not bfloat16_flags(tmp_path / "none")


@pytest.mark.parametrize("has_it", [True, False])
def test_auto_is_resolved_and_described(has_it, monkeypatch):
    monkeypatch.setattr("serving.inference.encoder.bfloat16_flags", lambda: ["amx_bf16"] * has_it)
    encoder = make_encoder(make_keras(num_hidden_layers=1), InferenceOptions("auto", other_cpu=True))
    needs = f" for x86 with oneDNN, a CPU with {AVX512.replace(' ', ', ')}" if has_it else ""
    compute = "bfloat16" if has_it else "float32"
    assert encoder.describe() == {"compute": compute, "requires": f"TensorFlow 2.17 or later{needs}"}
