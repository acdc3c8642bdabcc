"""Flat configurations: one for every option of depth, sharing, extension, position kind and norm."""

from typing import Any

from .places import take

SIZES = dict(
    vocab_size=40, embedding_size=4, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
RELATIVE = dict(position_type="relative")
MODERN = dict(norm_position="pre", norm="rms_norm", feed_forward="glu", use_bias=False)
ROBERTA = dict(
    sharing="none", embedding_size=8, position_offset=2, type_vocab_size=1, hidden_act="gelu_erf", layer_norm_eps=1e-5
)
SIX = dict(
    step_signal="sinusoid", halting="act", depth_lora_rank=2, depth_plan="1+1x2",
    attention_window=2, global_attention_every=2, position_type="rotary",
)  # fmt: skip
EQUILIBRIUM = dict(equilibrium_tolerance=0.0, equilibrium_max_steps=4)

PLAIN = {
    "albert": {},
    "bert": dict(sharing="none"),
    "sharing attention": dict(sharing="attention"),
    "sharing ffn": dict(sharing="ffn"),
    "two groups": dict(num_hidden_groups=2, num_hidden_layers=4),
    "inner groups": dict(inner_group_num=2, num_hidden_layers=2),
    "word factorization": dict(factorization="word"),
    "always projected": dict(embedding_size=8, always_project=True),
    "not projected": dict(embedding_size=8),
    "roberta": ROBERTA,
    "relu": dict(hidden_act="relu", layer_norm_eps=1e-6),
    "plan": dict(depth_plan="1+1x2"),
    "plan sharing ffn": dict(depth_plan="1x2+1", sharing="ffn"),
    "random depth": dict(random_depth_min=1),
}
NORMS = {
    "pre norm": dict(norm_position="pre"),
    "rms norm": dict(norm="rms_norm"),
    "rms norm without bias": dict(norm="rms_norm", use_bias=False),
    "no bias": dict(use_bias=False),
    # So large that its last bit counts.
    "epsilon": dict(layer_norm_eps=0.3),
    "rms epsilon": dict(norm="rms_norm", layer_norm_eps=0.3),
    "glu": dict(feed_forward="glu"),
    "swiglu": dict(feed_forward="glu", hidden_act="silu"),
    "modern": MODERN,
    "modern rotary": MODERN | dict(position_type="rotary"),
}
EXTENSIONS = {
    "step signal learned": dict(step_signal="learned"),
    "step signal sinusoid": dict(step_signal="sinusoid"),
    "low rank": dict(depth_lora_rank=2),
    "low rank attention": dict(depth_lora_rank=2, depth_lora_target="attention", sharing="attention"),
    "low rank ffn plan": dict(depth_lora_rank=1, depth_lora_target="ffn", depth_plan="1+1x2"),
    "halting act": dict(halting="act"),
    "halting act_t2t": dict(halting="act_t2t", halting_threshold=0.1, ponder_cost=0.1),
    "rotary": dict(position_type="rotary"),
    "rotary theta": dict(position_type="rotary", rotary_theta=500.0),
    "window": dict(attention_window=2),
    "window global": dict(attention_window=1, global_attention_every=2),
    "window rotary bert": dict(attention_window=2, position_type="rotary", sharing="none"),
    "distance buckets": dict(relative_attention_num_buckets=8),
    "mpnet": ROBERTA | dict(relative_attention_num_buckets=32),
    "six at once": SIX,
    "fixed point phantom": dict(equilibrium_solver="fixed_point", equilibrium_phantom_steps=2) | EQUILIBRIUM,
    "fixed point tolerance": dict(equilibrium_solver="fixed_point", equilibrium_tolerance=0.1, depth_plan="1+1x2"),
    "anderson phantom": dict(equilibrium_solver="anderson", equilibrium_damping=0.7, equilibrium_phantom_steps=2),
    "anderson implicit": dict(equilibrium_solver="anderson", equilibrium_gradient="implicit") | EQUILIBRIUM,
}
XLNET = {
    "relative": RELATIVE,
    "relative untied": RELATIVE | dict(untie_biases=True, sharing="none"),
    "relative untied shared": RELATIVE | dict(untie_biases=True),
    "relative uni clamped": RELATIVE | dict(attention_type="uni", clamp_length=3),
    "relative memory": RELATIVE | dict(memory_length=6),
    "relative memory reuse": RELATIVE | dict(memory_length=4, reuse_length=3, clamp_length=5),
    "relative signals": RELATIVE | dict(step_signal="learned"),
    "relative low rank": RELATIVE | dict(depth_lora_rank=2),
    "relative pre glu": RELATIVE | dict(norm_position="pre", feed_forward="glu"),
    "relative equilibrium": RELATIVE | dict(equilibrium_solver="anderson") | EQUILIBRIUM,
    # As transformers has it: biases that all layers share.
    "xlnet published": RELATIVE
    | dict(sharing="none", embedding_size=8, memory_length=6, hidden_act="gelu_erf", type_vocab_size=2),
    "xlnet": RELATIVE
    | dict(untie_biases=True, sharing="none", embedding_size=8, memory_length=6, reuse_length=4, hidden_act="gelu_erf"),
}
CONFIGURATIONS = PLAIN | NORMS | EXTENSIONS | XLNET
# One of every kind, for what takes longer: graphs, JAX, mixed precision.
OF_EACH_KIND = (
    "window global", "six at once", "fixed point phantom", "anderson implicit", "relative uni clamped", "xlnet",
    "mpnet",
)  # fmt: skip


def fields_of(name: str, **changes) -> dict:
    """Returns the fields of a configuration as an `albert_config.json` says them."""
    return SIZES | CONFIGURATIONS[name] | changes


def encoder_of(name: str, changes: dict | None = None, **options) -> Any:
    """Returns a new encoder of a configuration."""
    config = take("AlbertConfig").from_dict(fields_of(name, **(changes or {})))
    return take("AlbertEncoder")(config, seed=1, **options)
