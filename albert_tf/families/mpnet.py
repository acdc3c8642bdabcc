"""MPNet: BERT with a bias by distance, shared by all layers."""

from albert_tf.families.table import (
    BASE,
    BERT_LAYERS,
    DROPOUT,
    OF_SHARING,
    OWN_POOLER,
    ROBERTA_HEADS,
    UNSHARED,
    Family,
    Source,
    tables,
)

# What a model of MPNet has whatever its file says: no segments, 32 buckets, and positions counted from the row after
# that of padding, 1 (transformers modeling_mpnet.py, compute_position_bias and MPNetEmbeddings).
_FIELDS = dict(relative_attention_num_buckets=32, position_offset=2, type_vocab_size=1)
_RELEASED = DROPOUT | UNSHARED | _FIELDS | dict(vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5)

MPNET = Family(
    model_types=("mpnet",),
    class_name="MPNet",
    prefix="mpnet.",
    fixed={"relative_attention_num_buckets": (32,)},
    fields=UNSHARED | _FIELDS,
    defaults={"hidden_act": "gelu"} | DROPOUT,
    written={"pad_token_id": 1},
    unwritten=(*OF_SHARING, "type_vocab_size"),
    form={**{key: (value,) for key, value in _FIELDS.items()}, "is_plain": (True,)},
    marker="relative_attention_num_buckets",
    encoder={
        **BERT_LAYERS,
        **tables("embeddings.", "word", types=""),
        "distance_bias/table": Source("encoder.relative_attention_bias.weight"),
        **{f"attention/{name}": f"encoder.layer.{{i}}.attention.attn.{name[0]}" for name in ("query", "key", "value")},
        "attention/output": "encoder.layer.{i}.attention.attn.o",
        "attention/layer_norm": "encoder.layer.{i}.attention.LayerNorm",
    },
    heads=ROBERTA_HEADS,
    of_texts=OWN_POOLER,
    decoder="lm_head.decoder",
    word_act="gelu_erf",
    named={"mpnet_base": BASE | _RELEASED | dict(hidden_act="gelu_erf", embedding_size=768)},
)
