"""bfloat16 and int8: near the Keras encoder, a row's answer not depending on its neighbours, clear refusals."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from serving import cpu
from serving.inference import InferenceOptions, make_encoder
from serving.inference.dense import LayerNorm, OneDnnLayerNorm
from tests.serving.inference.encoders import (
    CONFIG,
    difference,
    make_batch,
    make_extended,
    make_keras,
    needs_avx512,
    needs_vnni,
    paddings,
)
from tfrecords.base.errors import UserError

AVX512 = "avx512f, avx512bw, avx512vl, avx512dq"


@paddings
@pytest.mark.parametrize(
    ("compute", "tolerance"),
    [
        pytest.param("bfloat16", 0.02, marks=needs_avx512),
        ("int8", 0.1),
        pytest.param("int8_vnni", 0.1, marks=needs_vnni),
    ],
)
def test_lower_precision_is_near_the_keras_encoder(compute, tolerance, padding):
    encoder, batch = make_keras(), make_batch((9, 1, 4, 12))
    sequence, pooled = difference(
        encoder, InferenceOptions(compute, padding), batch, calibration=batch[:2], reduce=np.mean
    )
    assert 1e-5 < sequence < tolerance
    assert 1e-5 < pooled < tolerance


@pytest.mark.parametrize("activation", ["gelu", "gelu_erf", "relu"])
@pytest.mark.few(2)
def test_int8_fuses_every_activation_it_takes(activation):
    encoder, batch = make_keras(hidden_act=activation, num_hidden_layers=1), make_batch()
    assert difference(encoder, InferenceOptions("int8"), batch, calibration=batch[:2])[0] < 0.15


@pytest.mark.parametrize("changes", [{"sharing": "none"}, {"num_hidden_groups": 2}, {"inner_group_num": 2}])
@pytest.mark.parametrize(("compute", "tolerance"), [pytest.param("bfloat16", 0.02, marks=needs_avx512), ("int8", 0.1)])
@pytest.mark.few(2)
def test_lower_precision_takes_every_plan(changes, compute, tolerance):
    encoder, batch = make_keras(num_hidden_layers=2, **changes), make_batch()
    found = difference(encoder, InferenceOptions(compute, "skipped"), batch, calibration=batch[:2], reduce=np.mean)
    assert max(found) < tolerance


@pytest.mark.parametrize(
    ("compute", "hint", "changes"),
    [
        pytest.param("bfloat16", "latency", {}, marks=needs_avx512),
        pytest.param("bfloat16", "throughput", {"hyper_connections": 3}, marks=needs_avx512),
        ("int8", "latency", {}),
        ("int8", "throughput", {}),
    ],
)
def test_an_answer_has_the_same_bits_in_every_batch(compute, hint, changes):
    """Alone and among up to 40 rows of other lengths: one product, softmax or layer norm that went another way with
    the number of tokens would be a rounding somewhere, and from there on another answer."""
    rng = np.random.default_rng(0)
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 130}
    model = make_extended(**sizes, **changes)
    encoder = make_encoder(model, InferenceOptions(compute, "skipped", performance_hint=hint))
    both = tf.function(
        lambda ids, lengths: encoder(ids, lengths) | {"pooled_alone": encoder.pooled(ids, lengths)},
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)],
    )
    for length in (1, 3, 9, 17, 31, 63, 64, 65, 100, 128):
        row = rng.integers(5, CONFIG.vocab_size, length)
        alone = both(row[np.newaxis], [length])
        for others in (1, 2, 5, 40):
            lengths = rng.integers(1, 130, others + 1).astype("int32")
            place = rng.integers(others + 1)
            lengths[place] = length
            ids = rng.integers(5, CONFIG.vocab_size, (others + 1, lengths.max()))
            ids[place, :length] = row
            for name, values in both(ids, lengths).items():
                values = values[place : place + 1]
                values = values[:, :length] if name == "sequence_output" else values
                # The pooler's float32 product comes after all rounding; without AVX-512 its last bits go by the batch.
                last_bits = 2e-6 if name != "sequence_output" and not cpu.has_avx512() else 0
                np.testing.assert_allclose(values, alone[name], rtol=0, atol=last_bits)


def test_int8_without_calibration_is_usable():
    assert difference(make_keras(), InferenceOptions("int8"), make_batch())[0] < 0.5


def test_int8_block_is_stored_once():
    def sizes(depth):
        encoder = make_encoder(make_keras(num_hidden_layers=depth), InferenceOptions("int8"))
        return sorted(variable.shape.num_elements() for variable in encoder.variables if variable.dtype == tf.int8)

    assert sizes(6) == sizes(2) == sorted([8 * 24, 24 * 72, 24 * 24, 24 * 40, 40 * 24])


def test_int8_refuses_an_activation_it_cannot_fuse():
    with pytest.raises(UserError, match="silu"):
        make_encoder(make_keras(hidden_act="silu"), InferenceOptions("int8"))


def test_int8_refuses_a_tensorflow_without_the_kernel(monkeypatch):
    def missing(*arguments, **named):
        raise tf.errors.NotFoundError(None, None, "no kernel")

    monkeypatch.setattr("serving.inference.onednn.op_def_library.apply_op", missing)
    with pytest.raises(UserError, match="oneDNN"):
        make_encoder(make_keras(num_hidden_layers=1), InferenceOptions("int8"))


def test_auto_goes_by_the_cpu(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags : fpu avx512f avx512_bf16\n")
    assert cpu.has_bfloat16(info)
    assert not cpu.has_avx512(info)
    info.write_text("processor : 0\nflags : fpu avx512f avx512bw avx512vl avx512dq\n")
    assert cpu.has_avx512(info) and not cpu.has_bfloat16(info)
    assert cpu.can_run("float32", info) and cpu.can_run("bfloat16", info) and not cpu.can_run("int8_vnni", info)
    info.write_text("processor : 0\nflags : fpu avx2 avx_vnni\n")
    assert cpu.can_run("int8_vnni", info)
    info.write_text("processor : 0\nflags : fpu avx2\n")
    assert not cpu.has_bfloat16(info)
    assert not cpu.has_bfloat16(tmp_path / "none")


def test_only_a_cpu_that_gains_is_advised(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags : fpu avx512f amx_bf16 avx512_bf16\n")
    assert cpu.advise("float32", info).startswith("this CPU has amx_bf16: --compute=bfloat16 is ")
    assert cpu.advise("bfloat16", info) is None
    info.write_text("processor : 0\nflags : fpu avx2\n")
    assert cpu.advise("float32", info) is None and cpu.advise("bfloat16", info) is None


def test_bfloat16_is_advised_against_where_it_is_computed_in_software(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags : fpu avx512f avx512bw avx512vl avx512dq avx512_vnni\n")
    assert cpu.advise("bfloat16", info).startswith("this CPU has neither amx_bf16 nor avx512_bf16: float32 is ")
    assert cpu.advise("float32", info) is None and cpu.advise("int8", info) is None


@needs_avx512
def test_auto_is_resolved_and_described(monkeypatch):
    for found, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("serving.inference.options.has_bfloat16", lambda found=found: found)
        encoder = make_encoder(make_keras(num_hidden_layers=1), InferenceOptions("auto"))
        needs = {"bfloat16": f"TensorFlow for x86 with oneDNN, a CPU with {AVX512}", "float32": "TensorFlow"}[expected]
        described = {"compute": expected, "padding": "skipped", "performance_hint": "latency", "requires": needs}
        assert encoder.describe() == described


def test_bfloat16_is_refused_where_it_would_end_the_process(monkeypatch):
    monkeypatch.setattr("serving.inference.options.has_avx512", lambda: False)
    with pytest.raises(UserError, match="no AVX-512; choose float32 or int8"):
        make_encoder(make_keras(num_hidden_layers=1), InferenceOptions("bfloat16"))


@pytest.mark.parametrize("name", ["compute", "padding", "performance_hint"])
def test_unknown_choices_are_refused(name):
    with pytest.raises(UserError, match=f"{name} 'none'"):
        InferenceOptions(**{name: "none"})


def test_throughput_is_refused_in_float32(monkeypatch):
    with pytest.raises(UserError, match="'throughput' is for bfloat16 and int8"):
        InferenceOptions("float32", performance_hint="throughput")
    monkeypatch.setattr("serving.inference.options.has_bfloat16", lambda: False)
    with pytest.raises(UserError, match="'throughput' is for bfloat16 and int8"):
        InferenceOptions("auto", performance_hint="throughput").resolved()


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_throughput_normalizes_every_step_in_one_pass(sharing):
    model = make_keras(sharing=sharing)

    def ops(hint):
        encoder = make_encoder(model, InferenceOptions("int8", performance_hint=hint))
        graph = tf.function(encoder, autograph=False).get_concrete_function(*make_batch()[:2]).graph
        nodes = [*graph.as_graph_def().node, *(n for f in graph.as_graph_def().library.function for n in f.node_def)]
        return [node.op for node in nodes].count("_MklLayerNorm")

    assert ops("latency") == 0 and ops("throughput") > 0
    assert difference(model, InferenceOptions("int8", performance_hint="throughput"), make_batch())[0] < 0.5


@pytest.mark.parametrize("center", [True, False])
def test_a_layer_norm_in_one_pass_gives_keras_numbers(center):
    layer = keras.layers.LayerNormalization(epsilon=1e-12, center=center)
    inputs = np.random.default_rng(0).normal(3, 5, (37, 48)).astype("float32")
    layer.build(inputs.shape)
    layer.set_weights([np.random.default_rng(1).normal(size=48) for _ in layer.weights])
    found = tf.function(OneDnnLayerNorm(LayerNorm(layer)), autograph=False)(inputs)
    np.testing.assert_allclose(found, layer(inputs), atol=2e-6)
