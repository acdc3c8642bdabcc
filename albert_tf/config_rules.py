"""What the fields of a configuration may be, each by itself and together."""

import dataclasses
import math
from typing import Any, cast

from albert_tf.depth_plan import read_depth_plan
from tfrecords.base.errors import UserError

CHOICES = {
    "hidden_act": ("gelu", "gelu_erf", "relu", "silu", "tanh", "linear", "relu6", "elu", "selu", "mish", "sigmoid"),
    "sharing": ("all", "attention", "ffn", "none"),
    "factorization": ("all", "word"),
    "step_signal": ("none", "learned", "sinusoid"),
    "depth_lora_target": ("attention", "ffn", "both"),
    "halting": ("none", "act", "act_t2t"),
    "equilibrium_solver": ("none", "fixed_point", "anderson"),
    "equilibrium_gradient": ("phantom", "implicit"),
    "norm_position": ("post", "pre"),
    "norm": ("layer_norm", "rms_norm"),
    "feed_forward": ("mlp", "glu"),
    "position_type": ("absolute", "rotary", "relative"),
    "attention_type": ("bi", "uni"),
}
# What keeps of a step's state more than the tokens' vectors, or counts places otherwise.
_NOT_WITH_RELATIVE = ("position_offset", "attention_window", "halting")
# What is remembered is what enters each step of a fixed plan.
_NOT_WITH_MEMORY = ("step_signal", "hyper_connections", "random_depth_min", "equilibrium_solver", "norm_position")
_ONLY_RELATIVE = ("attention_type", "clamp_length", "memory_length", "reuse_length", "untie_biases")
# What gives each step something of its own, or asks for states on the way: a fixed point has neither.
_NOT_WITH_EQUILIBRIUM = (
    *("step_signal", "hyper_connections", "depth_lora_rank", "halting", "random_depth_min", "untie_biases"),
)


def check(config: Any) -> None:
    """Checks the fields of an AlbertConfig.

    Raises:
        UserError: a value is impossible, or two do not go together; the message names them.
    """
    for field in dataclasses.fields(config):
        _check_type(field, getattr(config, field.name))
    for name, choices in CHOICES.items():
        if (value := getattr(config, name)) not in choices:
            raise UserError(f"{name} '{value}' is none of {', '.join(choices)}")
    for check_some in (_check_sizes, _check_extensions, _check_depth_plan, _check_depth_lora, _check_equilibrium):
        check_some(config)
    _check_relative(config)


def _check_type(field: dataclasses.Field, value: Any) -> None:
    if field.type in (str, bool):
        if not isinstance(value, field.type):
            raise UserError(f"{field.name} must be a {field.type.__name__}, not {value!r}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{field.name} must be a number, not {value!r}")
    # Counts of what there may be none of are 0 by default.
    least = min(cast(float, field.default), 1)
    if field.type is int and (not isinstance(value, int) or value < least):
        raise UserError(f"{field.name} must be a whole number of at least {least}, not {value}")
    if field.name.endswith("_prob") and not 0 <= value < 1:
        raise UserError(f"{field.name} must be a probability below 1, not {value}")
    if field.type is float and not (value >= 0 and math.isfinite(value)):
        raise UserError(f"{field.name} must be finite and not negative, not {value}")


def _check_sizes(config: Any) -> None:
    if config.hidden_size % config.num_attention_heads:
        raise UserError(
            f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {config.num_attention_heads}"
        )
    if config.num_hidden_groups > config.num_hidden_layers:
        raise UserError(
            f"num_hidden_groups {config.num_hidden_groups} is over num_hidden_layers {config.num_hidden_layers};"
            " some groups would never run"
        )
    if config.max_seq_length < 1:
        raise UserError(
            f"position_offset {config.position_offset} leaves no row of max_position_embeddings"
            f" {config.max_position_embeddings} for a token"
        )
    if config.position_type == "rotary" and config.head_size % 2:
        raise UserError(f"position_type 'rotary' turns pairs of numbers; a head of {config.head_size} is odd")
    if config.position_type == "rotary" and config.position_offset:
        raise UserError("position_offset counts rows of a table of positions, and position_type 'rotary' has none")
    if config.rotary_theta <= 0:
        raise UserError(f"rotary_theta must be above 0, not {config.rotary_theta}")


def _check_extensions(config: Any) -> None:
    if config.gate_init > 1:
        raise UserError(f"gate_init must be from 0 to 1, not {config.gate_init}")
    if config.halting_threshold >= 1:
        raise UserError(f"halting_threshold must be below 1, not {config.halting_threshold}")
    if config.hyper_connections == 1:
        raise UserError("hyper_connections 1 leaves no streams to choose from; give 2 or more, or 0 for none")
    if config.random_depth_min > config.num_hidden_layers:
        raise UserError(
            f"random_depth_min {config.random_depth_min} is over num_hidden_layers {config.num_hidden_layers}"
        )
    if config.global_attention_every and not config.attention_window:
        raise UserError(
            f"global_attention_every {config.global_attention_every} says which steps have no attention_window, and"
            " there is none; set it, or leave this at 0"
        )
    if config.random_depth_min and config.global_attention_every:
        raise UserError("random_depth_min and global_attention_every exclude each other; leave one out")
    if config.random_depth_min and config.halting != "none":
        raise UserError("random_depth_min and halting exclude each other; leave one out")


def _check_depth_plan(config: Any) -> None:
    if not config.depth_plan:
        return
    runs = sum(part.blocks * part.repeats for part in read_depth_plan(config.depth_plan))
    if runs != config.num_hidden_layers:
        raise UserError(
            f"depth_plan '{config.depth_plan}' runs {runs} blocks, num_hidden_layers is {config.num_hidden_layers};"
            " the two must agree"
        )
    if config.num_hidden_groups > 1 or config.inner_group_num > 1:
        raise UserError("depth_plan takes the place of num_hidden_groups and inner_group_num; leave these at 1")
    if config.sharing == "none":
        raise UserError("depth_plan says which blocks are shared, sharing 'none' shares none; leave one out")


def _check_depth_lora(config: Any) -> None:
    halves = {"all": ("attention", "ffn", "both"), "attention": ("attention", "both"), "ffn": ("ffn", "both")}
    repeats = config.num_hidden_groups < config.num_hidden_layers
    if config.depth_plan:
        repeats = any(part.repeats > 1 for part in read_depth_plan(config.depth_plan))
    if config.depth_lora_rank and not (repeats and config.depth_lora_target in halves.get(config.sharing, ())):
        raise UserError(
            f"depth_lora_rank {config.depth_lora_rank} with depth_lora_target '{config.depth_lora_target}' needs blocks"
            " that several steps share there, and this configuration has none; leave it at 0"
        )


def _check_equilibrium(config: Any) -> None:
    if not 0 < config.equilibrium_damping <= 1:
        raise UserError(f"equilibrium_damping must be above 0 and at most 1, not {config.equilibrium_damping}")
    fixed = config.equilibrium_solver == "fixed_point" and config.equilibrium_tolerance == 0
    if fixed and config.equilibrium_gradient == "phantom" and config.equilibrium_damping != 1:
        raise UserError("with equilibrium_tolerance 0 the phantom steps are the last steps; equilibrium_damping is 1")
    if config.equilibrium_tolerance >= 1:
        raise UserError(f"equilibrium_tolerance must be below 1, not {config.equilibrium_tolerance}")
    for name in _NOT_WITH_EQUILIBRIUM if config.equilibrium_solver != "none" else ():
        if _differs(config, name):
            raise UserError(
                f"{name} {getattr(config, name)!r} and equilibrium_solver '{config.equilibrium_solver}' exclude each"
                " other: a fixed point is of one function, the same at every step; leave one out"
            )


def _check_relative(config: Any) -> None:
    if config.position_type != "relative":
        for name in _ONLY_RELATIVE:
            if _differs(config, name):
                raise UserError(
                    f"{name} {getattr(config, name)!r} needs position_type 'relative'; set it, or leave this"
                )
        return
    if config.hidden_size % 2:
        raise UserError(f"position_type 'relative' has a sine for each cosine; hidden_size {config.hidden_size} is odd")
    excluded = {"position_type 'relative'": _NOT_WITH_RELATIVE}
    if config.memory_length:
        excluded[f"memory_length {config.memory_length}"] = _NOT_WITH_MEMORY
    for what, names in excluded.items():
        for name in names:
            if _differs(config, name):
                raise UserError(f"{name} {getattr(config, name)!r} and {what} exclude each other; leave one out")
    if config.reuse_length and not config.memory_length:
        raise UserError(f"reuse_length {config.reuse_length} is a part of the memory, and there is none")


def _differs(config: Any, name: str) -> bool:
    """Whether a field is not what it is by default."""
    return getattr(config, name) != type(config).__dataclass_fields__[name].default
