"""GTE: BERT with rotary positions and gated units; gte-multilingual, gte-en 1.5, snowflake-arctic-embed 2 (medium)."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import (
    BERT_KEYS,
    DROPOUT,
    TASK_HEADS,
    Source,
    any_value,
    joined,
    read_rotary,
    rotary_family,
    tables,
)


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    # The default of the model's own code is another than that of transformers.
    theta = values.get("rope_theta", 160000.0 if values.get("model_type") == "gte" else None)
    scaling, heads, width = values.get("rope_scaling"), fields.get("num_attention_heads"), fields.get("hidden_size")
    factor = scaling.get("factor") if isinstance(scaling, dict) and scaling.get("type") == "ntk" else None
    if isinstance(factor, int | float) and isinstance(theta, int | float) and type(heads) is type(width) is int:
        # That code's form, in which the base grows, too (text-embeddings-inference rotary.rs).
        changed = {"type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 * heads / width)}
        values = {**values, "rope_scaling": {**scaling, **changed}}
    return read_rotary(values, fields, theta)


_LAYER = "encoder.layer.{i}"
GTE = rotary_family(
    model_types=("gte", "new"),
    class_name="Gte",
    prefix="gte.",
    other_prefixes=("new.",),
    keys=BERT_KEYS,
    fixed={
        **{"position_embedding_type": ("rope",), "layer_norm_type": ("layer_norm",)},
        **dict.fromkeys(("logn_attention_scale", "logn_attention_clip1"), (False,)),
    },
    others="pack_qkv unpad_inputs use_memory_efficient_attention",
    fields=dict(without_bias="inner"),
    defaults=DROPOUT | dict(hidden_act="gelu", type_vocab_size=1, max_position_embeddings=8192),
    read=_read,
    form={"type_vocab_size": any_value},
    encoder={
        **tables("embeddings.", "word", positions=""),
        "embeddings/layer_norm": "embeddings.LayerNorm",
        **joined(f"{_LAYER}.attention.qkv_proj"),
        "attention/output": f"{_LAYER}.attention.o_proj",
        "attention/layer_norm": f"{_LAYER}.attn_ln",
        "feed_forward/intermediate": (f"{_LAYER}.mlp.up_gate_proj", 1, 2),
        "feed_forward/gate": (f"{_LAYER}.mlp.up_gate_proj", 0, 2),
        "feed_forward/output": f"{_LAYER}.mlp.down_proj",
        "feed_forward/layer_norm": f"{_LAYER}.mlp_ln",
        "pooler": "pooler.dense",
    },
    heads=TASK_HEADS
    | {
        "masked_lm/dense": "lm_head.dense",
        "masked_lm/layer_norm": "lm_head.norm",
        "masked_lm/output_bias": Source("lm_head.decoder.bias"),
    },
    decoder="lm_head.decoder",
    word_act="gelu_erf",
)
