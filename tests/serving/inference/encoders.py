"""Tiny Keras encoders and batches, and how far the inference encoder is from them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertEncoder
from serving.cpu import has_avx512, has_vnni
from serving.inference import make_encoder

needs_avx512 = pytest.mark.skipif(not has_avx512(), reason="bfloat16 products need a CPU with AVX-512")
needs_vnni = pytest.mark.skipif(not has_vnni(), reason="int8_vnni needs a CPU with avx512_vnni or avx_vnni")

# Whether what is tried is traced as for an export. Float32 is as right without, in a third of the time.
eager_or_graph = pytest.mark.parametrize("graph", [False, pytest.param(True, marks=pytest.mark.slow)])

# Whether padding is skipped, as exports do at their defaults, or computed.
paddings = pytest.mark.parametrize("padding", ["skipped", pytest.param("computed", marks=pytest.mark.slow)])

CONFIG = AlbertConfig(
    vocab_size=60, embedding_size=8, hidden_size=24, num_hidden_layers=4, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=16, initializer_range=0.3,
)  # fmt: skip


def make_keras(seed=0, **changes):
    keras.utils.set_random_seed(seed)
    encoder = AlbertEncoder(CONFIG.replace(**changes))
    for variable in encoder.trainable_variables:
        if variable.name in ("bias", "beta", "gamma"):
            variable.assign(variable + keras.random.normal(variable.shape, stddev=0.1))
    return encoder


def make_relative(seed=0, **changes):
    """Its biases and segment embeddings too are such that they matter."""
    encoder = make_keras(seed, position_type="relative", **changes)
    for variable in encoder.trainable_variables:
        if variable.path.split("/")[-1] in ("content_bias", "position_bias", "segment_bias", "segment_embeddings"):
            variable.assign(keras.random.normal(variable.shape, stddev=0.5))
    return encoder


# Extensions over depth.
EXTENSIONS = {
    "windows": {"attention_window": 2, "global_attention_every": 2},
    "learned signal": {"step_signal": "learned"},
    "hyper-connections": {"hyper_connections": 3},
    "low rank": {"depth_lora_rank": 2},
    "low rank, gated": {"depth_lora_rank": 2, "depth_plan": "1+1x3", "feed_forward": "glu", "position_type": "rotary"},
    "halting": {"halting": "act"},
    "halting as in tensor2tensor": {"halting": "act_t2t", "norm_position": "pre"},
    "halting streams": {"halting": "act", "hyper_connections": 2, "depth_plan": "1+1x2+1"},
    "all": {"step_signal": "sinusoid", "hyper_connections": 2, "depth_lora_rank": 2, "depth_plan": "1+1x2+1"},
}


_QUICK = ("windows", "low rank, gated", "halting streams", "all")
# In lower precision, those that have most of them at once.
extensions = pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=() if name in _QUICK else pytest.mark.slow)
        for name, changes in EXTENSIONS.items()
    ],
)


def make_extended(**changes):
    """An encoder with extensions that are no longer at their start."""
    encoder = make_keras(gate_init=0.5, **changes)
    for name, variable in encoder.depth_variables.items():
        scale = 0.02 if name.endswith("kernel") else 0.2
        variable.assign(variable + keras.random.normal(variable.shape, stddev=scale, seed=len(name)))
    return encoder


def make_batch(lengths=(9, 1, 4, 12), length=12, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.arange(length) < np.array(lengths)[:, None]
    # Padding holds what a server puts there: the first id, not 0.
    ids = np.where(mask, rng.integers(5, CONFIG.vocab_size, mask.shape), 2)
    return ids.astype("int32"), np.array(lengths, "int32"), rng.integers(0, 2, mask.shape).astype("int32"), mask


def compiled(encoder):
    return tf.function(encoder.__call__, autograph=False)


def difference(encoder, how, batch, calibration=None, reduce=np.max, graph=True):
    """Differences from the Keras encoder at real tokens, the largest or what `reduce` makes of them: of
    sequence_output, and of pooled_output both ways."""
    ids, lengths, segments, mask = batch
    expected = encoder({"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments})
    twin = make_encoder(encoder, how, calibration)

    def both(*batch):
        return twin(*batch) | {"pooled_alone": twin.pooled(*batch)}

    found = (tf.function(both, autograph=False) if graph else both)(ids, lengths, segments)
    assert found["sequence_output"].shape == expected["sequence_output"].shape
    sequence = np.abs(found["sequence_output"].numpy() - expected["sequence_output"].numpy())[mask]
    pooled = expected["pooled_output"].numpy()
    return reduce(sequence), max(
        reduce(np.abs(found[name].numpy() - pooled)) for name in ("pooled_output", "pooled_alone")
    )
