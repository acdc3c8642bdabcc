from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base.extensions import ExtensionLayer
from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
from albert_tf.config import AlbertConfig
from albert_tf.config.extension import begins_plain
from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.base.errors import UserError

# The plan, and keys of training alone; the numbers of steps are checked separately.
_FREE = (
    *("num_hidden_layers", "num_hidden_groups", "inner_group_num", "sharing", "random_depth_min", "initializer_range"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
)


def share_blocks(model: Model, config: AlbertConfig) -> Model:
    """Returns a new uncompiled model with shared blocks that approximates `model`.

    A shared weight is the mean over its steps. An adapter a_i b_i approximates step i's
    kernel minus the shared kernel, by a truncated singular value decomposition; a_i has orthonormal columns
    (arXiv:2410.20672). Differences of biases and norms are lost.

    Args:
        model: any model or AlbertEncoder, of any sharing.
        config: the new configuration, with as many steps, more sharing, and `depth_lora_rank` (0: no adapters).

    Raises:
        UserError: `config` changes more than sharing and extensions that initially have no effect.

    >>> sizes = dict(vocab_size=9, embedding_size=8, hidden_size=8, num_attention_heads=2, intermediate_size=12)
    >>> bert = AlbertEncoder(AlbertConfig(**sizes, num_hidden_layers=3, sharing="none"))
    >>> shared = share_blocks(bert, bert.config.replace(sharing="all", depth_lora_rank=2))
    >>> len(shared.blocks), tuple(shared.halves_of("attention")[0].lora_query.a.shape)
    (1, (3, 8, 2))
    """
    source = encoder_of(model)
    _check(source.config, config)
    other = with_config(model, config)
    shared, before, after = encoder_of(other), named_variables(model), named_variables(other)
    halves = {
        f"{half}_{number}": [step for step, which in enumerate(shared.steps) if getattr(which, half) == number]
        for half in ("attention", "feed_forward")
        for number in {getattr(which, half) for which in shared.steps}
    }
    for name, variable in after.items():
        half, _, rest = name.partition("/")
        if half in halves:
            kind = half.rpartition("_")[0]
            values = np.stack([_of_step(source, before, kind, rest, step) for step in halves[half]])
            if values.shape == variable.shape:
                variable.assign(values)  # Each step keeps its own.
                continue
            common = values.mean(axis=0)
            variable.assign(common)
            adapter = shared.extension_layers().get(f"depth_lora/{half}/{rest.removesuffix('/kernel')}")
            if adapter is not None:
                _decompose(values - common, adapter)
        elif not name.startswith("depth_lora/") and name in before and before[name].shape == variable.shape:
            variable.assign(ops.convert_to_numpy(before[name]))
    return other


def unshare_blocks(model: Model) -> Model:
    """Returns an equivalent model with one block per step; depth LoRA is merged into kernels.

    >>> sizes = dict(vocab_size=9, embedding_size=8, hidden_size=8, num_attention_heads=2, intermediate_size=12)
    >>> shared = AlbertEncoder(AlbertConfig(**sizes, num_hidden_layers=3, depth_lora_rank=2))
    >>> merged = unshare_blocks(shared)
    >>> len(shared.blocks), len(merged.blocks), merged.config.depth_lora_rank
    (1, 3, 0)
    """
    config = encoder_of(model).config
    changes: dict[str, Any] = {"sharing": "none", "depth_plan": "", "num_hidden_groups": 1}
    for extension in config.extensions:
        if extension.walk:
            raise UserError("blocks that run until an equilibrium have no steps that could get weights of their own")
        changes |= extension.unshared()
    return share_blocks(model, config.replace(**changes))


def _check(source: AlbertConfig, config: AlbertConfig) -> None:
    if source.num_steps != config.num_steps:
        raise UserError(
            f"share_blocks: the model runs {source.num_steps} blocks, its new configuration {config.num_steps}; the two"
            " must agree"
        )
    different = [
        f"{name} {getattr(config, name)!r} (model: {getattr(source, name)!r})"
        for name in source.differing(config)
        if name not in _FREE and not begins_plain(name)
    ]
    if different:
        raise UserError(f"share_blocks: another model than the one given: {', '.join(sorted(different))}")


def _of_step(encoder: AlbertEncoder, named: dict[str, keras.Variable], half: str, rest: str, step: int) -> np.ndarray:
    number = getattr(encoder.steps[step], half)
    owner = encoder.halves_of(half)[number]
    half = f"{half}_{number}"
    value = ops.convert_to_numpy(named[f"{half}/{rest}"])
    per_step = [
        name for _, holder, _ in owner.own_extension_weights() for name, one in holder.weights.items() if one.per_step
    ]
    if rest in per_step and len(owner.steps) > 1:
        return value[owner.steps.index(step)]
    adapter = encoder.extension_layers().get(f"depth_lora/{half}/{rest.removesuffix('/kernel')}")
    if adapter is None:
        return value
    visit = adapter.steps.index(step)
    return value + ops.convert_to_numpy(adapter.a)[visit] @ ops.convert_to_numpy(adapter.b)[visit]


def _decompose(differences: np.ndarray, adapter: ExtensionLayer) -> None:
    left, values, right = np.linalg.svd(differences, full_matrices=False)
    a, b = np.array(ops.convert_to_numpy(adapter.a)), np.zeros(adapter.b.shape, "float32")
    rank = min(a.shape[2], values.shape[1])
    a[:, :, :rank] = left[:, :, :rank]
    b[:, :rank] = (values[:, :, None] * right)[:, :rank]
    adapter.a.assign(a)
    adapter.b.assign(b)
