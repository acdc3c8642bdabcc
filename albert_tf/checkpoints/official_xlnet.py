"""XLNet's names and shapes in zihangdai/xlnet (modeling.py).

All attention kernels, the output layer's too, are [d_model, heads, head_size].
"""

from typing import Any

import numpy as np

from albert_tf.checkpoints.variables import Source, check_published, layer_sources
from albert_tf.config import AlbertConfig
from tfrecords.base.errors import UserError

_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "output": "o", "relative": "r"}
_BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias"}
_STACKED = {**_BIASES, "segment_embeddings": "seg_embed"}
_TF1 = "model/transformer"


def check_form(config: AlbertConfig) -> None:
    """Raises UserError for shared blocks or factorized embeddings, which published XLNets lack."""
    check_published(config, "XLNet's code", ("position_type",))
    if not config.is_plain:
        raise UserError(
            "XLNet's code has no XLNet with shared blocks or factorised embeddings; keep it as a .keras file"
        )


def official_sources(config: AlbertConfig) -> dict[str, Source]:
    """Maps this package's variable names to the names of zihangdai/xlnet's tensors after `unstacked`."""
    # The misspelling is XLNet's.
    layers = {"pooler": "model/sequnece_summary/summary"}
    own = {
        "embeddings/word_embeddings": Source(f"{_TF1}/word_embedding/lookup_table"),
        "embeddings/mask_embedding": Source(f"{_TF1}/mask_emb/mask_emb", shape=(1, 1, config.hidden_size)),
        "masked_lm/output_bias": Source("model/lm_loss/bias"),
    }
    kernel = (config.hidden_size, config.num_attention_heads, config.head_size)
    for i in range(config.num_steps):
        scope = f"{_TF1}/layer_{i}"
        layers |= {f"attention_{i}/layer_norm": f"{scope}/rel_attn/LayerNorm"}
        feed_forward = {"layer_norm": "LayerNorm", "intermediate": "layer_1", "output": "layer_2"}
        layers |= {f"feed_forward_{i}/{ours}": f"{scope}/ff/{name}" for ours, name in feed_forward.items()}
        for ours, name in _PROJECTIONS.items():
            source = Source(f"{scope}/rel_attn/{name}/kernel", transposed=ours == "output", shape=kernel)
            own[f"attention_{i}/{ours}/kernel"] = source
        own |= {f"attention_{i}/{ours}": Source(f"{_TF1}/{name}/{i}") for ours, name in _STACKED.items()}
    return own | layer_sources(layers)


def unstacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Splits tensors in which zihangdai/xlnet stacks all layers; biases that layers share are copied to each."""
    result, segments = dict(tensors), tensors.get(f"{_TF1}/seg_embed")
    for name in _STACKED.values():
        tensor = result.pop(f"{_TF1}/{name}", None)
        if tensor is None or segments is None:
            continue
        is_tied = name in _BIASES.values() and tensor.ndim == 2
        result |= {f"{_TF1}/{name}/{i}": tensor if is_tied else tensor[i] for i in range(len(segments))}
    return result


def stacked(tensors: dict[str, np.ndarray], config: AlbertConfig) -> dict[str, np.ndarray]:
    """Undoes `unstacked`, except that each layer keeps its own biases."""
    result = dict(tensors)
    for name in _STACKED.values():
        layers = [result.pop(f"{_TF1}/{name}/{i}") for i in range(config.num_steps)]
        result[f"{_TF1}/{name}"] = np.stack(layers)
    return result


def is_official(names: Any) -> bool:
    """Returns whether the tensor names are those of a zihangdai/xlnet checkpoint."""
    return any(name.startswith(f"{_TF1}/") for name in names)


def config_values(config: AlbertConfig) -> dict[str, Any]:
    """Returns the configuration under the keys of XLNet's code."""
    if config.hidden_act not in ("gelu", "relu"):
        raise UserError(f"XLNet's code has no hidden_act '{config.hidden_act}'; its gelu is the tanh form, 'gelu'")
    names = {"d_model": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    names |= {"n_token": "vocab_size", "d_inner": "intermediate_size", "ff_activation": "hidden_act"}
    values = {theirs: getattr(config, ours) for theirs, ours in names.items()}
    return values | {"d_head": config.head_size, "untie_r": True}
