"""Tiny Keras encoders of every kind, batches for them, and how far other numbers are from theirs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

from albert_tf import AlbertConfig, AlbertEncoder
from serving.inference.onednn import can_run

HAS_AVX512 = can_run("bfloat16")
needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="bfloat16 products need a CPU with AVX-512")

CONFIG = AlbertConfig(
    vocab_size=60, embedding_size=8, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=16, initializer_range=0.3
)  # fmt: skip
TABLE = yaml.safe_load("""
parts:
  # What models of today have in place of BERT's block.
  - &modern {norm_position: pre, norm: rms_norm, feed_forward: glu, position_type: rotary, use_bias: false}
  - &relative {position_type: relative}
  # Larger weights would have the last bits of those before a gate move what comes of it by more than 1e-5.
  - &gated {feed_forward: glu, initializer_range: 0.15}
  # A first block, one that repeats, and a last one.
  - &plan {depth_plan: 1+1x2+1, num_hidden_layers: 4}
# Every option of an encoder at least once, and every two of the five in `modern`.
encoders:
  albert: {}
  unshared, exact gelu: {sharing: none, hidden_act: gelu_erf}
  modern: {<<: [*modern, *gated, *plan]}
  pre, rms: {norm_position: pre, norm: rms_norm, sharing: attention, hidden_act: relu}
  pre, gated, no bias: {<<: *gated, norm_position: pre, use_bias: false, num_hidden_groups: 2}
  rms, rotary, no bias:
    {norm: rms_norm, position_type: rotary, use_bias: false, inner_group_num: 2, factorization: word}
  windows: {attention_window: 2, global_attention_every: 2, step_signal: learned}
  windows alone, rotary: {attention_window: 3, position_type: rotary}
  low rank, gated:
    {<<: *gated, depth_lora_rank: 2, depth_plan: 1+1x2, num_hidden_layers: 3, position_type: rotary, hidden_act: silu,
     embedding_size: 24}
  halting before norms: {halting: act_t2t, norm_position: pre, num_hidden_layers: 4}
  halting plan: {<<: *plan, halting: act}
  distance buckets: {relative_attention_num_buckets: 32, sharing: none, position_offset: 2}
  plan, low rank: {<<: *plan, depth_lora_rank: 2}
  all: {<<: *plan, step_signal: sinusoid, depth_lora_rank: 2}
  relative, one-directional: {<<: [*relative, *plan], untie_biases: true, attention_type: uni, clamp_length: 2}
  relative, extended:
    {<<: *relative, depth_lora_rank: 2, step_signal: learned, factorization: word}
  relative, unshared, gated: {<<: [*relative, *gated], sharing: none, norm_position: pre, norm: rms_norm}
""")
MODERN, RELATIVE, GATED, PLAN = TABLE["parts"]
ENCODERS = TABLE["encoders"]


def make_keras(seed=0, **changes):
    """An encoder with no bias, scale, gate or extension at its start, where it might have no effect."""
    keras.utils.set_random_seed(seed)
    encoder = AlbertEncoder(CONFIG.replace(**{"gate_init": 0.5} | changes))
    for variable in encoder.trainable_variables:
        name = variable.path.split("/")[-1]
        if name in ("bias", "beta", "gamma", "scale"):
            variable.assign(variable + keras.random.normal(variable.shape, stddev=0.1))
        elif name in ("content_bias", "position_bias", "segment_bias", "segment_embeddings"):
            variable.assign(keras.random.normal(variable.shape, stddev=0.5))
    for name, variable in encoder.depth_variables.items():
        scale = 0.02 if name.endswith("kernel") else 0.2
        variable.assign(variable + keras.random.normal(variable.shape, stddev=scale, seed=len(name)))
    return encoder


def make_batch(lengths=(9, 1, 4, 12), length=12, seed=0):
    """Ids, lengths, segments and a boolean mask; padding holds what a server puts there: the first id, not 0."""
    rng = np.random.default_rng(seed)
    mask = np.arange(length) < np.array(lengths)[:, None]
    ids = np.where(mask, rng.integers(5, CONFIG.vocab_size, mask.shape), 2)
    return ids.astype("int32"), np.array(lengths, "int32"), rng.integers(0, 2, mask.shape).astype("int32"), mask


def features(batch):
    """A batch as Keras models take it."""
    ids, _, segments, mask = batch
    return {"input_ids": ids, "input_mask": mask.astype("int32"), "segment_ids": segments}


def both(twin):
    """All answers of an inference encoder, and those that it gives where only the pooled ones are requested."""
    return lambda *inputs: twin(*inputs) | {"pooled_alone": twin.pooled(*inputs)}


def compiled(function, *shapes):
    """Runs a function as a graph: for int32 arrays of these shapes, or for those that come."""
    return tf.function(function, [tf.TensorSpec(shape, tf.int32) for shape in shapes] or None, autograph=False)


def require_near(found, expected, mask, limit=1e-5, reduce=np.max):
    """Fails where answers are further than the limit from those of Keras, at real tokens."""
    for name, values in found.items():
        values, numbers = values.numpy(), np.asarray(expected[name.replace("pooled_alone", "pooled_output")])
        assert values.shape == numbers.shape
        if values.shape[:2] == mask.shape:
            values, numbers = values[mask], numbers[mask]
        assert reduce(np.abs(values - numbers)) < limit, name
