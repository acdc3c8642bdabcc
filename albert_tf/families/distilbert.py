"""DistilBERT: BERT without segments, with a ReLU in its head for texts."""

from albert_tf.families.table import DROPOUT, TASK_HEADS, UNSHARED, Family, Source, tables

_FIELDS = dict(type_vocab_size=0, pooler_act="relu", layer_norm_eps=1e-12)
_OTHER_NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_LAYER = "transformer.layer.{i}"

DISTILBERT = Family(
    model_types=("distilbert",),
    class_name="DistilBert",
    prefix="distilbert.",
    keys={
        **{"vocab_size": "vocab_size", "dim": "hidden_size", "hidden_dim": "intermediate_size"},
        **{"n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "activation": "hidden_act"},
        # In transformers, other names of the same.
        **{key: key for key in _OTHER_NAMES},
        **{"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
        **{key: key for key in ("max_position_embeddings", "initializer_range", "tie_word_embeddings")},
    },
    # Positions by sines are stored as any others.
    others="qa_dropout seq_classif_dropout sinusoidal_pos_embds",
    fields=UNSHARED | _FIELDS,
    defaults={"hidden_act": "gelu"} | DROPOUT,
    unwritten=_OTHER_NAMES,
    form={"is_plain": (True,), **{key: (value,) for key, value in _FIELDS.items()}},
    marker="pooler_act",
    encoder={
        **tables("embeddings.", "word", types=""),
        "embeddings/layer_norm": "embeddings.LayerNorm",
        **{f"attention/{name}": f"{_LAYER}.attention.{name[0]}_lin" for name in ("query", "key", "value")},
        "attention/output": f"{_LAYER}.attention.out_lin",
        "attention/layer_norm": f"{_LAYER}.sa_layer_norm",
        "feed_forward/intermediate": f"{_LAYER}.ffn.lin1",
        "feed_forward/output": f"{_LAYER}.ffn.lin2",
        "feed_forward/layer_norm": f"{_LAYER}.output_layer_norm",
    },
    heads=TASK_HEADS
    | {
        "pooler": "pre_classifier",
        "masked_lm/dense": "vocab_transform",
        "masked_lm/layer_norm": "vocab_layer_norm",
        "masked_lm/output_bias": Source("vocab_projector.bias"),
    },
    decoder="vocab_projector",
)
