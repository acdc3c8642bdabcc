"""ALBERT: shared blocks and factorized embeddings, of google-research, brightmart and transformers."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import BASE, DROPOUT, LARGE, TASK_HEADS, Family, Source, tables

# The published xlarge files say 16 heads, though the paper's rule of hidden_size / 64 would give 32.
_XLARGE = dict(hidden_size=2048, num_hidden_layers=24, num_attention_heads=16, intermediate_size=8192)
_XXLARGE = dict(hidden_size=4096, num_hidden_layers=12, num_attention_heads=64, intermediate_size=16384)
_TINY = dict(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1248)
_SMALL = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
_CHINESE = dict(vocab_size=21128)


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    if "num_hidden_groups" not in values and values.keys() & {"directionality", "ln_type"}:
        # brightmart's code writes keys of BERT's, and projects words alone.
        fields["factorization"] = "word"
    if values.get("model_type") and fields.get("embedding_size", 128) == fields.get("hidden_size"):
        fields.setdefault("always_project", True)
    return fields


_BLOCK = "encoder.albert_layer_groups.{group}.albert_layers.{inner}"

ALBERT = Family(
    model_types=("albert",),
    class_name="Albert",
    prefix="albert.",
    known_by=(("embedding_size",), ("num_hidden_groups",), ("sharing",), ("depth_plan",)),
    config_file="albert_config*.json",
    is_factorized=True,
    defaults={"hidden_act": "gelu_new"},
    read=_read,
    written={
        "num_hidden_groups": lambda config: (
            config.num_hidden_layers if config.sharing == "none" else config.num_hidden_groups
        )
    },
    unwritten=("sharing", "factorization", "always_project", "position_offset"),
    form={
        "is_plain": (False,),
        "type_vocab_size": range(1, 1 << 31),
        "sharing": ("all", "none"),
        "factorization": lambda config: not (config.is_projected and config.factorization == "word"),
    },
    encoder={
        **tables("embeddings.", "word"),
        "embeddings/layer_norm": "embeddings.LayerNorm",
        "embeddings/projection": "encoder.embedding_hidden_mapping_in",
        **{f"attention/{name}": f"{_BLOCK}.attention.{name}" for name in ("query", "key", "value")},
        "attention/output": f"{_BLOCK}.attention.dense",
        "attention/layer_norm": f"{_BLOCK}.attention.LayerNorm",
        "feed_forward/intermediate": f"{_BLOCK}.ffn",
        "feed_forward/output": f"{_BLOCK}.ffn_output",
        "feed_forward/layer_norm": f"{_BLOCK}.full_layer_layer_norm",
        "pooler": "pooler",
    },
    heads=TASK_HEADS
    | {
        "masked_lm/dense": "predictions.dense",
        "masked_lm/layer_norm": "predictions.LayerNorm",
        "masked_lm/output_bias": Source("predictions.bias"),
        "pair": "sop_classifier.classifier",
    },
    decoder="predictions.decoder",
    pair_task="sop",
    needs_projection=True,
    bos_is_cls=True,
    named={
        # README of google-research/albert: version 2 trains without dropout, version 1 with it except for xxlarge.
        "albert_base_v1": BASE | DROPOUT,
        "albert_large_v1": LARGE | DROPOUT,
        "albert_xlarge_v1": _XLARGE | DROPOUT,
        "albert_xxlarge_v1": _XXLARGE,
        "albert_base_v2": BASE,
        "albert_large_v2": LARGE,
        "albert_xlarge_v2": _XLARGE,
        "albert_xxlarge_v2": _XXLARGE,
        # google-research/albert issue 154: the Chinese models use ReLU.
        "albert_base_zh": BASE | _CHINESE | dict(hidden_act="relu"),
        "albert_large_zh": LARGE | _CHINESE | dict(hidden_act="relu"),
        "albert_xlarge_zh": _XLARGE | _CHINESE | dict(hidden_act="relu", initializer_range=0.014),
        "albert_xxlarge_zh": _XXLARGE
        | _CHINESE
        | dict(hidden_act="relu", num_attention_heads=16, initializer_range=0.01),
        # brightmart/albert_zh: its own code (`factorization` "word"), and google-research's code trained by it.
        "albert_tiny_zh": _TINY | _CHINESE | dict(factorization="word"),
        "albert_small_zh": _SMALL | _CHINESE | dict(factorization="word"),
        "albert_tiny_zh_google": _TINY | _CHINESE,
        "albert_small_zh_google": _SMALL | _CHINESE,
    },
    aliases={
        "albert_base": "albert_base_v2",
        "albert_large": "albert_large_v2",
        "albert_xlarge": "albert_xlarge_v2",
        "albert_xxlarge": "albert_xxlarge_v2",
        "albert_tiny": "albert_tiny_zh_google",
        "albert_small": "albert_small_zh_google",
    },
)
