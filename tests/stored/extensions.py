"""What `extensions.tar.xz` and `extensions.npz` next to it hold: a tiny model of every extension, XLNet and RoBERTa.

Exports and folders in HuggingFace's form, as the commit before the encoder was restructured wrote them; the script
that did stands in commit 7779acce. `tests/test_stored.py` says that all of it still loads and answers as then.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.stored import make

SIZES = dict(
    vocab_size=24, embedding_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip
RELATIVE = dict(position_type="relative")
ENCODERS = {
    "modern": dict(norm_position="pre", norm="rms_norm", feed_forward="glu", use_bias=False),
    "groups": dict(num_hidden_groups=2, sharing="attention", factorization="word"),
    "plan": dict(depth_plan="1+1x2", num_hidden_layers=3, sharing="ffn"),
    "random_depth": dict(random_depth_min=1, num_hidden_layers=3),
    "step_signal": dict(step_signal="learned"),
    "step_signal_sinusoid": dict(step_signal="sinusoid"),
    "depth_lora": dict(depth_lora_rank=2),
    "halting": dict(halting="act"),
    "halting_t2t": dict(halting="act_t2t"),
    "rotary": dict(position_type="rotary"),
    "window": dict(attention_window=2, global_attention_every=2),
    "several_at_once": dict(
        step_signal="sinusoid", halting="act", depth_lora_rank=1, depth_plan="1+1x2",
        num_hidden_layers=3, attention_window=2, global_attention_every=2, position_type="rotary",
    ),
    "equilibrium": dict(equilibrium_solver="anderson", equilibrium_tolerance=0.0, equilibrium_max_steps=3),
    "equilibrium_implicit": dict(
        equilibrium_solver="fixed_point", equilibrium_gradient="implicit", equilibrium_tolerance=0.0,
        equilibrium_max_steps=3,
    ),
    "relative": RELATIVE | dict(attention_type="uni", clamp_length=3),
    "relative_memory": RELATIVE | dict(memory_length=4, reuse_length=3, untie_biases=True),
    "distance_buckets": dict(relative_attention_num_buckets=8, position_offset=2),
}  # fmt: skip
XLNET = RELATIVE | dict(sharing="none", embedding_size=8, memory_length=4, hidden_act="gelu_erf", type_vocab_size=2)
ROBERTA = dict(
    sharing="none", embedding_size=8, position_offset=2, type_vocab_size=1, hidden_act="gelu_erf", layer_norm_eps=1e-5
)
MODERNBERT = dict(
    sharing="none", embedding_size=8, norm_position="pre", feed_forward="glu", use_bias=False, first_norm=False,
    pooler_norm=True, pooler_act="gelu_erf", pooling="mean", position_type="rotary", rotary_local_theta=100.0,
    attention_window=2, global_attention_every=2, window_first_token=False, tie_word_embeddings=False,
)  # fmt: skip
# Of 7 tokens of a row so many are real.
LENGTHS = (7, 4, 1)
EXPORTED = ("xlnet_classifier", "roberta_classifier", "several_at_once")
FOLDERS = ("xlnet", "roberta")


def inputs_of(name: str, config: Any) -> dict[str, np.ndarray]:
    """The batch that a model answers: two streams and memory of XLNet's pre-trainer."""
    found = make.features(LENGTHS, SIZES["vocab_size"])
    if config.type_vocab_size == 1:
        del found["segment_ids"]
    if config.memory_length:
        shape = (config.num_steps, 3, 3, config.hidden_size)
        found["memory"] = np.random.default_rng(4).normal(size=shape).astype("float32")
    if name in ("xlnet", "relative", "relative_memory"):
        found["perm_mask"] = np.random.default_rng(5).integers(0, 2, (3, 7, 7)).astype("int32")
        targets = "masked_lm_positions" if name == "xlnet" else "query_positions"
        found[targets] = np.array([[1, 2], [0, 3], [0, 0]], "int32")
    return found


def answers_of(model: keras.Model, name: str) -> dict[str, np.ndarray]:
    """What a model answers, as arrays by name."""
    return make.arrays_of(model(inputs_of(name, getattr(model, "encoder", model).config)))


def signature_answers(version: Path) -> dict[str, np.ndarray]:
    """What an export answers to three rows of ids."""
    import tensorflow as tf

    function = tf.saved_model.load(str(version)).signatures["serving_default"]
    given = make.features(LENGTHS, SIZES["vocab_size"]) | {"lengths": np.array(LENGTHS, "int32")}
    specs = function.structured_input_signature[1]
    # A threshold, of models that may leave early.
    inputs = {key: tf.cast(given.get(key, np.full(3, 2.0)), spec.dtype) for key, spec in specs.items()}
    found = {key: value.numpy() for key, value in function(**inputs).items()}
    return {key: value.astype("S") if value.dtype == object else value for key, value in found.items()}
