"""XLNet's configurations: the published ones, and those in files of transformers and zihangdai/xlnet."""

from collections.abc import Mapping
from typing import Any

from tfrecords.base.errors import UserError

CONFIG_FILE = "xlnet_config.json"
# There is no table of positions; the number of positions only limits the length of the commands' rows.
_FIELDS = dict(sharing="none", position_type="relative", hidden_act="gelu", type_vocab_size=4)
_FIELDS |= dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
# Fields by their names in files.
NAMES = {
    **{"n_token": "vocab_size", "vocab_size": "vocab_size", "d_model": "hidden_size", "n_layer": "num_hidden_layers"},
    **{"n_head": "num_attention_heads", "d_head": "head_size", "d_inner": "intermediate_size"},
    **{"ff_activation": "hidden_act", "attn_type": "attention_type", "dropout": "hidden_dropout_prob"},
    **{"clamp_len": "clamp_length", "mem_len": "memory_length", "reuse_len": "reuse_length"},
    **{"initializer_range": "initializer_range", "layer_norm_eps": "layer_norm_eps"},
}
# Keys whose only supported value has no effect; reversed rows are marked by a feature.
MUST_EQUAL: dict[str, tuple] = {
    **{"model_type": ("xlnet",), "bi_data": (False,), "same_length": (False,), "tie_word_embeddings": (True,)},
    **{"summary_type": ("last",), "summary_use_proj": (True,), "summary_activation": ("tanh",), "pruned_heads": ({},)},
    **{"is_decoder": (False,), "add_cross_attention": (False,), "is_encoder_decoder": (False,)},
    **{"cross_attention_hidden_size": (None,), "chunk_size_feed_forward": (0,), "per_layer_config": (None,)},
    **{"quantization_config": (None,)},
}


def named(base: dict[str, Any], large: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns XLNet's configurations by name."""
    fields = _FIELDS | dict(vocab_size=32000)
    return {
        "xlnet_base": base | fields | dict(embedding_size=768),
        "xlnet_large": large | fields | dict(embedding_size=1024),
        # An unpublished ALBERT form: one block, and factorized embeddings.
        "albert_xlnet_base": base | fields | dict(sharing="all", embedding_size=128),
    }


def describes(values: Mapping[str, Any]) -> bool:
    """Returns whether a configuration file, of transformers or zihangdai/xlnet, describes an XLNet."""
    return values.get("model_type") == "xlnet" or {"d_model", "n_layer"} <= values.keys()


def read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a file's keys to AlbertConfig fields; "gelu" in zihangdai/xlnet is the tanh form (modeling.py:9)."""
    known = {NAMES[key]: value for key, value in values.items() if key in NAMES}
    known["attention_probs_dropout_prob"] = known.setdefault("hidden_dropout_prob", _FIELDS["hidden_dropout_prob"])
    # They write None or -1 for none.
    lengths = ("memory_length", "reuse_length", "clamp_length")
    known |= {name: 0 for name in lengths if known.get(name) in (None, -1)}
    size, heads, width = known.pop("head_size", None), known.get("num_attention_heads"), known.get("hidden_size")
    if size is not None and not (type(heads) is type(size) is int and heads * size == width):
        raise UserError(f"d_head {size} is another architecture; a head has d_model / n_head numbers")
    return _FIELDS | {"embedding_size": width} | known
