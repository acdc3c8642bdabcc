"""GTE: BERT with rotary positions and gated units; gte-multilingual, gte-en 1.5, snowflake-arctic-embed 2 (medium)."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import (
    BERT_KEYS,
    DROPOUT,
    ROTARY,
    ROTARY_FORM,
    ROTARY_KEYS,
    TASK_HEADS,
    UNSHARED,
    Family,
    Source,
    any_value,
    joined,
    read_rotary,
    tables,
    written_rotary,
)

_FIELDS = dict(feed_forward="glu", without_bias="inner")


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    # The default of the model's own code is another than that of transformers.
    theta = values.get("rope_theta", 160000.0 if values.get("model_type") == "gte" else None)
    scaling, heads, width = values.get("rope_scaling"), fields["num_attention_heads"], fields["hidden_size"]
    factor = scaling.get("factor") if isinstance(scaling, dict) and scaling.get("type") == "ntk" else None
    if isinstance(factor, int | float) and isinstance(theta, int | float) and type(heads) is type(width) is int:
        # That code's form, in which the base grows, too (text-embeddings-inference rotary.rs).
        changed = {"type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 * heads / width)}
        values = {**values, "rope_scaling": {**scaling, **changed}}
    return read_rotary(values, fields, theta)


_LAYER = "encoder.layer.{i}"
GTE = Family(
    model_types=("gte", "new"),
    class_name="Gte",
    prefix="gte.",
    other_prefixes=("new.",),
    keys=BERT_KEYS,
    fixed={
        **{"position_embedding_type": ("rope",), "layer_norm_type": ("layer_norm",)},
        **dict.fromkeys(("logn_attention_scale", "logn_attention_clip1"), (False,)),
    },
    others=f"pack_qkv unpad_inputs use_memory_efficient_attention {ROTARY_KEYS}",
    fields=UNSHARED | ROTARY | _FIELDS,
    defaults=DROPOUT | dict(hidden_act="gelu", type_vocab_size=1, max_position_embeddings=8192),
    read=_read,
    written={"rope_parameters": written_rotary, "pad_token_id": None},
    form={**ROTARY_FORM, **{key: (value,) for key, value in _FIELDS.items()}, "type_vocab_size": any_value},
    marker="position_type",
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
