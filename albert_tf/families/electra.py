"""ELECTRA: BERT with factorized embeddings and without a pooler; generators, and discriminators as encoders."""

from albert_tf.families.table import BERT_LAYERS, DROPOUT, OWN_POOLER, TASK_HEADS, UNSHARED, Family, Source

ELECTRA = Family(
    model_types=("electra",),
    class_name="Electra",
    prefix="electra.",
    # Of the head for choices, whose other values no model has.
    fixed={"summary_type": ("first",), "summary_use_proj": (True,), "summary_activation": ("gelu",)},
    is_factorized=True,
    fields=UNSHARED | dict(pooler_act="gelu_erf"),
    defaults={"hidden_act": "gelu"} | DROPOUT,
    unwritten=(
        *("sharing", "factorization", "always_project", "position_offset", "num_hidden_groups", "inner_group_num"),
        "pooler_act",
    ),
    form={
        **{"sharing": ("none",), "inner_group_num": (1,), "factorization": ("all",), "always_project": (False,)},
        **{"pooler_act": ("gelu_erf",), "type_vocab_size": range(1, 1 << 31)},
    },
    marker="pooler_act",
    encoder={
        **{ours: theirs for ours, theirs in BERT_LAYERS.items() if ours != "pooler"},
        "embeddings/projection": "embeddings_project",
    },
    heads=TASK_HEADS
    | {
        "pooler": "sequence_summary.summary",
        "masked_lm/dense": "generator_predictions.dense",
        "masked_lm/layer_norm": "generator_predictions.LayerNorm",
        "masked_lm/output_bias": Source("generator_lm_head.bias"),
        # Which tokens were replaced.
        "detector/dense": "discriminator_predictions.dense",
        "detector/output": "discriminator_predictions.dense_prediction",
    },
    of_texts=OWN_POOLER,
    decoder="generator_lm_head",
    word_act="gelu_erf",
)
