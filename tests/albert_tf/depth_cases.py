"""The configurations of the depth loop contract, and what each is compared by; runs under any Keras backend."""

import json

import numpy as np
from keras import ops

from albert_tf import AlbertConfig, AlbertEncoder
from albert_tf.layers.padded import PaddedRows

RNG = np.random.default_rng(3)
LENGTH = 12
FEATURES = {
    "input_ids": RNG.integers(5, 40, (3, LENGTH)).astype("int32"),
    "input_mask": (np.arange(LENGTH) < np.array([[12], [9], [5]])).astype("int32"),
    "segment_ids": (np.arange(LENGTH) > np.array([[6], [4], [12]])).astype("int32"),
    "masked_lm_positions": np.array([[1, 4], [2, 0], [3, 1]], "int32"),
    "masked_lm_ids": RNG.integers(5, 40, (3, 2)).astype("int32"),
    "masked_lm_weights": np.array([[1, 1], [1, 0], [1, 1]], "float32"),
    "next_sentence_labels": np.array([[0], [1], [1]], "int32"),
}
TOKENS = {name: FEATURES[name] for name in ("input_ids", "input_mask", "segment_ids")}
TEXTS = {name: FEATURES[name] for name in ("input_ids", "input_mask")}
PACKED = FEATURES | {
    "sequence_ids": np.repeat([[1, 2, 3]], [5, 3, 4], axis=1).repeat(3, axis=0).astype("int32"),
    "sequence_starts": np.array([[0, 5, 8]] * 3, "int32"),
}
# Each query sees a token: if all scores are -10,000, the order in which a bias is added decides their last digits.
SEEN = PACKED | {"input_mask": (np.arange(LENGTH) < np.array([[12], [11], [9]])).astype("int32")}
# Two targets a row, a memory of three columns, and one reversed row.
STREAMS = TOKENS | {
    "query_positions": FEATURES["masked_lm_positions"],
    "perm_mask": (RNG.random((3, LENGTH, LENGTH)) < 0.4).astype("float32"),
    "is_reversed": np.array([0, 1, 0], "int32"),
}
MEMORY = STREAMS | {"memory": RNG.normal(size=(3, 3, 3, 16)).astype("float32")}

MODERN = dict(norm_position="pre", norm="rms_norm", feed_forward="glu", position_type="rotary", use_bias=False)
RELATIVE = {"position_type": "relative", "untie_biases": True, "num_hidden_layers": 3}
WINDOW = {"attention_window": 3, "global_attention_every": 2}
BUCKETS = {"relative_attention_num_buckets": 8, "position_offset": 2}
EVERYTHING = dict(
    step_signal="sinusoid", depth_lora_rank=2, depth_plan="1+1x3", halting="act",
    attention_window=3
)  # fmt: skip
# A number of steps, since rows that stop by a tolerance may do so a step apart.
SOLVED = {"equilibrium_tolerance": 0.0, "equilibrium_max_steps": 4, "num_hidden_layers": 3}
CONFIGS: dict[str, dict] = json.loads("""{
    "shared": {"num_hidden_layers": 3},
    "groups": {"num_hidden_layers": 3, "num_hidden_groups": 2, "inner_group_num": 2},
    "unshared": {"sharing": "none", "num_hidden_layers": 2},
    "shared attention": {"sharing": "attention", "num_hidden_layers": 3},
    "begin, middle, end": {"num_hidden_layers": 6, "depth_plan": "1+2x2+1"},
    "learned signal": {"step_signal": "learned", "sharing": "ffn", "depth_plan": "1+1x3"},
    "low rank of one half": {"depth_lora_rank": 2, "depth_lora_target": "attention", "depth_plan": "2x2r"},
    "act": {"halting": "act", "halting_threshold": 0.05},
    "tensor2tensor's act": {"halting": "act_t2t", "num_hidden_layers": 3},
    "random depth": {"num_hidden_layers": 6, "depth_plan": "1+1x4+1", "random_depth_min": 3}
}""") | {
    "window every other step": WINDOW | {"num_hidden_layers": 5},
    "modern block": MODERN | {"num_hidden_layers": 3, "num_hidden_groups": 2},
    "modern block, packed": MODERN | {"depth_plan": "1+1x2", "num_hidden_layers": 3},
    "relative": RELATIVE,
    "memory": RELATIVE | {"memory_length": 4, "attention_type": "uni", "clamp_length": 3},
    "distance buckets": BUCKETS | {"num_hidden_layers": 3},
    "distance buckets, packed": BUCKETS | {"depth_plan": "1+1x2", "num_hidden_layers": 3, "norm_position": "pre"},
    "everything": EVERYTHING,
}
EQUILIBRIA = {
    "phantom": SOLVED | dict(equilibrium_solver="fixed_point", equilibrium_phantom_steps=2, attention_window=3),
    "implicit": SOLVED | dict(equilibrium_solver="anderson", equilibrium_gradient="implicit"),
}
INPUTS = {"modern block, packed": PACKED, "distance buckets, packed": SEEN, "relative": STREAMS, "memory": MEMORY}


def small(**changes):
    sizes = dict(vocab_size=40, embedding_size=8, hidden_size=16, num_hidden_layers=4, num_attention_heads=2)
    return AlbertConfig(**sizes | dict(intermediate_size=24, max_position_embeddings=16) | changes)


def rows_of(mask):
    """Rows of a mask [rows, length]."""
    return PaddedRows(small(), {"input_ids": mask, "input_mask": mask}, None, "float32")


def weights_like(model, seed=7):
    """Large enough to make every part matter; scales near 1, since random ones drown what tells tokens apart."""
    rng = np.random.default_rng(seed)
    centres = {"gamma": 1.0, "scale": 1.0, "gate": 0.5}
    return [centres.get(w.path.split("/")[-1], 0.0) + rng.normal(scale=0.2, size=w.shape) for w in model.weights]


def filled(model):
    model.set_weights(weights_like(model))
    return model


def alike(config, **kwargs):
    """An encoder with the same weights at every call."""
    return filled(AlbertEncoder(config, **kwargs))


def inputs(name):
    return INPUTS.get(name, FEATURES)


def encoder_of(name, walk, dropout=0.0):
    changes = (CONFIGS | EQUILIBRIA)[name]
    config = small(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **changes)
    return alike(config, walk="unrolled" if name in EQUILIBRIA else walk, seed=11)


def loss_of(encoder, features, outputs):
    """A number that depends on everything that an encoder answers."""
    rng, total = np.random.default_rng(5), sum(encoder.losses)
    for name in ("sequence_output", "query_output", "pooled_output"):
        if name in outputs:
            weights = rng.normal(size=outputs[name].shape).astype("float32")
            total = total + ops.sum(outputs[name] * weights)
    return total


def trained(model, features, loss=loss_of):
    """The outputs in training and the gradients of `loss(model, features, outputs)` by the names of the weights."""
    values = [variable.value for variable in model.trainable_variables]
    import tensorflow as tf  # Here, since models need none of it under JAX, where test_jax.py imports this file.

    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        value = loss(model, features, outputs)
    found = map(tf.convert_to_tensor, tape.gradient(value, values, unconnected_gradients="zero"))
    outputs = {name: outputs[name] for name in outputs if name not in ("hidden_states", "attentions")}
    paths = [variable.path.split("/", 1)[-1] for variable in model.trainable_variables]
    return {"loss": value} | outputs | dict(zip(paths, found, strict=True))


def assert_same(found, expected, scale=1e-6):
    """Within 1e-6 of the largest number of each."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        largest = max(1.0, np.abs(np.asarray(value, "float64")).max())
        np.testing.assert_allclose(found[name], value, atol=scale * largest, err_msg=name)
