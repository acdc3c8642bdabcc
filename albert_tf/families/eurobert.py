"""EuroBERT: Llama's block without a causal mask; heads of keys and values are repeated when they are read."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import (
    SHARED_KEYS,
    Source,
    any_value,
    read_rotary,
    rotary_family,
)
from tfrecords.base.errors import UserError

_FIELDS = dict(norm_position="pre", norm="rms_norm", type_vocab_size=0, embedding_norm=False)
_FIELDS |= dict(word_transform=False, pooler_act="gelu_erf")


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    bias, heads = fields["use_bias"], fields.get("num_attention_heads")
    if values.get("mlp_bias", False) is not bias:
        raise UserError(f"mlp_bias {values.get('mlp_bias')!r} with attention_bias {bias!r} is another architecture")
    groups = values.get("num_key_value_heads")
    if groups is not None and not (type(groups) is type(heads) is int and groups > 0 and heads % groups == 0):
        raise UserError(f"num_key_value_heads {groups!r} is no divisor of num_attention_heads {heads!r}")
    if (pooling := fields["pooling"]) not in ("bos", "mean", "late"):
        raise UserError(f"classifier_pooling {pooling!r} is none of bos, mean, late")
    return read_rotary(values, fields | {"pooling": "cls" if pooling == "bos" else pooling}, 10000.0)


_LAYER = "layers.{i}"
EUROBERT = rotary_family(
    model_types=("eurobert",),
    class_name="EuroBert",
    prefix="model.",
    keys={
        **SHARED_KEYS,
        **{"rms_norm_eps": "layer_norm_eps", "hidden_act": "hidden_act", "attention_bias": "use_bias"},
        **{"attention_dropout": "attention_probs_dropout_prob"},
        **{"clf_pooling": "pooling", "classifier_pooling": "pooling"},
    },
    fixed={"pretraining_tp": (1,)},
    others="mlp_bias num_key_value_heads hidden_dropout",
    fields=_FIELDS,
    defaults=dict(hidden_act="silu", layer_norm_eps=1e-5, use_bias=False, tie_word_embeddings=False, pooling="late")
    | dict(max_position_embeddings=8192),
    read=_read,
    written={
        "mlp_bias": lambda config: config.use_bias,
        "classifier_pooling": lambda config: {"cls": "bos"}.get(config.pooling, config.pooling),
        "pad_token_id": None,
    },
    unwritten=("clf_pooling",),
    form=dict.fromkeys(("use_bias", "pooling"), any_value),
    encoder={
        "embeddings/word_embeddings": Source("embed_tokens.weight"),
        **{f"attention/{name}": f"{_LAYER}.self_attn.{name[0]}_proj" for name in ("query", "key", "value", "output")},
        "attention/layer_norm": f"{_LAYER}.input_layernorm",
        "feed_forward/intermediate": f"{_LAYER}.mlp.gate_proj",
        "feed_forward/gate": f"{_LAYER}.mlp.up_proj",
        "feed_forward/output": f"{_LAYER}.mlp.down_proj",
        "feed_forward/layer_norm": f"{_LAYER}.post_attention_layernorm",
        "final_norm": "norm",
    },
    heads={"pooler": "dense", "classifier": "classifier", "masked_lm/output_bias": Source("lm_head.bias")},
    decoder="lm_head",
    grouped_heads="num_key_value_heads",
)
