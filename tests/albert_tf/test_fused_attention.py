"""Attention by one kernel: the same numbers, in training too, and every reason why there is none is said at the door.

On a CPU Keras has no such kernel and computes the same by its own operations: what is tested here is all but cuDNN.
"""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from albert_tf.layers.fused_attention import check, fused_attention
from albert_tf.training.pretraining import pretrain
from albert_tf.training.pretraining_settings import PretrainingSettings
from tests.albert_tf.depth_cases import FEATURES, PACKED, alike, assert_same, small, trained
from tests.albert_tf.refusals import refused
from tests.albert_tf.tiny import table

TINY = small(hidden_size=32, num_attention_heads=4, num_hidden_layers=2, max_position_embeddings=32)
RECORDS = Path(__file__).parents[1] / "stored" / "dynamic" / "*.tfrecord*"
ROWS = {
    "padded": ("input_ids", "input_mask"),
    "packed": ("input_ids", "input_mask", "sequence_ids"),
    "full": ("input_ids",),
}


@pytest.fixture
def biases(monkeypatch):
    """Gives the shapes of what is added to the scores of each call of Keras's attention."""
    shapes, original = [], keras.ops.dot_product_attention

    def seen(*args, bias=None, **kwargs):
        shapes.append(None if bias is None else tuple(bias.shape))
        return original(*args, bias=bias, **kwargs)

    monkeypatch.setattr(keras.ops, "dot_product_attention", seen)
    return shapes


@pytest.mark.parametrize("walk", ["unrolled", "loop"])
@pytest.mark.parametrize("kind", ROWS)
def test_the_encoder_gives_the_same(kind, walk, biases):
    rows = {name: PACKED[name] for name in ROWS[kind]}
    encoder = alike(TINY.replace(position_type="rotary", norm_position="pre"), walk=walk)
    before = encoder(rows)["sequence_output"]
    assert not biases
    with fused_attention():
        after = encoder(rows)["sequence_output"]
    # cuDNN takes none of a single query.
    assert biases and set(biases) == {None if kind == "full" else (3, 1, 12, 12)}
    real = rows.get("input_mask", np.ones((3, 12)))[..., None]
    np.testing.assert_allclose(after * real, before * real, atol=1e-5)


def test_rows_of_an_odd_number_of_columns_go_the_other_way(biases):
    with fused_attention():
        alike(TINY)(FEATURES["input_ids"][:, :9])
    assert not biases


def test_gradients_are_the_same():
    found = []
    for on in (False, True):
        with fused_attention(on):
            found.append(trained(alike(TINY), {"input_ids": FEATURES["input_ids"]}))
    assert_same(*found, 1e-5)


def test_a_run_that_cannot_have_it_writes_nothing(tmp_path):
    TINY.to_json(tmp_path / "config.json")
    settings = PretrainingSettings(
        train_data=str(RECORDS), output_dir=str(tmp_path / "run"), config=str(tmp_path / "config.json"),
        num_train_steps=2, num_warmup_steps=0, train_batch_size=4, fused_attention=True,
    )  # fmt: skip
    with refused(r"^--fused_attention needs KERAS_BACKEND=jax"):
        pretrain(settings)
    assert not (tmp_path / "run").exists()


def test_a_gpu_without_the_kernel_is_named(monkeypatch):
    jax = pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def none(*args, **kwargs):
        assert kwargs["flash_attention"] and args[0].shape == (1, 8, 1, 8)
        raise RuntimeError("Require at least Ampere arch to run\nand more")

    monkeypatch.setattr(keras.ops, "dot_product_attention", none)
    with refused(r"no such kernel here for heads of 8 columns: Require at least Ampere .*run$"):
        check(TINY.replace(attention_probs_dropout_prob=0.0), "mixed_bfloat16")


NEEDS = table(r"""
    {}                                    | mixed_bfloat16 | tensorflow | KERAS_BACKEND=jax \(it is tensorflow\)
    {}                                    | float32        | jax | --dtype_policy=mixed_bfloat16 \(it is float32\)
    {"attention_probs_dropout_prob": 0.1} | mixed_bfloat16 | jax | without dropout .*it is 0.1
    {"attention_window": 4}               | mixed_bfloat16 | jax | no attention_window 4
    {"hidden_size": 36}                   | mixed_bfloat16 | jax | a multiple of 8 \(they have 9\)
    {}                                    | mixed_bfloat16 | jax | a GPU that JAX sees \(it computes on: cpu\)
""")


@pytest.mark.parametrize("changes, dtype, backend, needs", NEEDS)
def test_what_is_missing_is_named(changes, dtype, backend, needs, monkeypatch):
    if "GPU" in needs:
        pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    with refused(f"^--fused_attention needs .*{needs}"):
        check(TINY.replace(**{"attention_probs_dropout_prob": 0.0} | json.loads(changes)), dtype)
