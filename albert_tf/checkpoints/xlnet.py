"""XLNet's names and shapes in transformers (modeling_xlnet.py) and in zihangdai/xlnet (modeling.py).

All attention kernels, the output layer's too, are [d_model, heads, head_size].
"""

import re
from typing import Any

import numpy as np

from albert_tf.checkpoints.variables import Source, check_published, layer_sources
from albert_tf.config import AlbertConfig
from albert_tf.permutation.configuration import NAMES
from tfrecords.base.errors import UserError

_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "output": "o", "relative": "r"}
_KERNEL = re.compile(r"/?rel_attn[./][qkvor](/kernel)?$")
_BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias"}
_STACKED = {**_BIASES, "segment_embeddings": "seg_embed"}
_TF1 = "model/transformer"
_JOINT = {
    "start": "start_logits.dense",
    "end_hidden": "end_logits.dense_0",
    "end_norm": "end_logits.LayerNorm",
    "end": "end_logits.dense_1",
    "answer_hidden": "answer_class.dense_0",
    "answer": "answer_class.dense_1",
}


def check_form(config: AlbertConfig, where: str) -> None:
    """Raises UserError for shared blocks or factorized embeddings, which published XLNets lack."""
    check_published(config, where, extensions=("random_depth", "relative"))
    if config.sharing != "none" or config.is_projected or config.inner_group_num > 1:
        raise UserError(f"{where} has no XLNet with shared blocks or factorised embeddings; keep it as a .keras file")


def huggingface_sources(config: AlbertConfig, prefix: str, is_tagger: bool) -> dict[str, Source]:
    """Maps this package's variable names to transformers'."""
    layers = {"pooler": "sequence_summary.summary", "span": "qa_outputs", **_JOINT}
    layers["classifier"] = "classifier" if is_tagger else "logits_proj"
    own = {
        "embeddings/word_embeddings": Source(f"{prefix}word_embedding.weight"),
        "embeddings/mask_embedding": Source(f"{prefix}mask_emb"),
        "masked_lm/output_bias": Source("lm_loss.bias"),
    }
    for i in range(config.num_steps):
        scope = f"{prefix}layer.{i}"
        layers |= _halves(i, scope, ".", "layer_norm")
        own |= _attention(i, f"{scope}.rel_attn.", "")
        own |= {f"attention_{i}/{ours}": Source(f"{scope}.rel_attn.{name}") for ours, name in _STACKED.items()}
    return own | layer_sources(layers, "{layer}.{part}", kernel="weight", gamma="weight", beta="bias")


def official_sources(config: AlbertConfig) -> dict[str, Source]:
    """Maps this package's variable names to the names of zihangdai/xlnet's tensors after `unstacked`."""
    # The misspelling is XLNet's.
    layers = {"pooler": "model/sequnece_summary/summary"}
    own = {
        "embeddings/word_embeddings": Source(f"{_TF1}/word_embedding/lookup_table"),
        "embeddings/mask_embedding": Source(f"{_TF1}/mask_emb/mask_emb"),
        "masked_lm/output_bias": Source("model/lm_loss/bias"),
    }
    for i in range(config.num_steps):
        scope = f"{_TF1}/layer_{i}"
        layers |= _halves(i, scope, "/", "LayerNorm")
        own |= _attention(i, f"{scope}/rel_attn/", "/kernel")
        own |= {f"attention_{i}/{ours}": Source(f"{_TF1}/{name}/{i}") for ours, name in _STACKED.items()}
    return own | layer_sources(layers)


def _halves(i: int, scope: str, mark: str, norm: str) -> dict[str, str]:
    names = {"attention/layer_norm": ("rel_attn", norm), "feed_forward/layer_norm": ("ff", norm)}
    names |= {"feed_forward/intermediate": ("ff", "layer_1"), "feed_forward/output": ("ff", "layer_2")}
    return {ours.replace("/", f"_{i}/"): mark.join((scope, *theirs)) for ours, theirs in names.items()}


def _attention(i: int, scope: str, end: str) -> dict[str, Source]:
    return {
        f"attention_{i}/{ours}/kernel": Source(f"{scope}{name}{end}", transposed=ours == "output")
        for ours, name in _PROJECTIONS.items()
    }


def flattened(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reshapes kernels to two axes, and drops the copy of tied word embeddings."""
    result = dict(tensors)
    for name, tensor in tensors.items():
        if _KERNEL.search(name) and tensor.ndim == 3:
            result[name] = tensor.reshape(tensor.shape[0], -1)
        elif name.endswith("mask_emb"):
            result[name] = tensor.reshape(-1)
    words, copy = tensors.get("transformer.word_embedding.weight"), tensors.get("lm_loss.weight")
    if words is not None and copy is not None and np.array_equal(words, copy):
        del result["lm_loss.weight"]
    return result


def unflattened(tensors: dict[str, np.ndarray], config: AlbertConfig) -> dict[str, np.ndarray]:
    """Undoes `flattened`, except for the dropped copy."""
    kernel = (config.hidden_size, config.num_attention_heads, config.head_size)
    shapes = {name: kernel for name in tensors if _KERNEL.search(name)}
    shapes |= {name: (1, 1, config.hidden_size) for name in tensors if name.endswith("mask_emb")}
    return {name: tensor.reshape(shapes.get(name, tensor.shape)) for name, tensor in tensors.items()}


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


def config_values(config: AlbertConfig, where: str) -> dict[str, Any]:
    """Returns the configuration under the keys of transformers or, if `where` is "official", of XLNet's code."""
    if where == "official":
        if config.hidden_act not in ("gelu", "relu"):
            raise UserError(f"XLNet's code has no hidden_act '{config.hidden_act}'; its gelu is the tanh form, 'gelu'")
        names = ("d_model", "n_layer", "n_head", "n_token", "d_inner", "ff_activation")
        values = {name: getattr(config, NAMES[name]) for name in names}
        return values | {"d_head": config.head_size, "untie_r": True}
    values = {theirs: getattr(config, ours) for theirs, ours in NAMES.items() if theirs not in ("n_token", "d_head")}
    values |= {"d_head": config.head_size, "untie_r": True, "bi_data": False, "same_length": False}
    values["ff_activation"] = {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(config.hidden_act, config.hidden_act)
    values |= {"clamp_len": config.clamp_length or -1, "mem_len": config.memory_length or None}
    return values | {"reuse_len": config.reuse_length or None, "summary_type": "last", "summary_use_proj": True}
