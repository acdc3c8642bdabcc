"""A family of models from outside the package: BERT's blocks under names of its own, with fused projections."""

from albert_tf.families import Family, Source

NOVA = Family(
    model_types=("nova",),
    class_name="Nova",
    prefix="nova.",
    keys={
        **{"words": "vocab_size", "width": "hidden_size", "depth": "num_hidden_layers", "heads": "num_attention_heads"},
        **{"inside": "intermediate_size", "act": "hidden_act", "longest": "max_position_embeddings"},
    },
    fixed={"causal": (False,)},
    others="temperature_of_training",
    fields={"sharing": "none", "type_vocab_size": 0, "feed_forward": "glu", "use_bias": False},
    form={
        **{"is_plain": (True,), "type_vocab_size": (0,), "feed_forward": ("glu",), "use_bias": (False,)},
        **{"norm_position": ("post",), "pooler_act": ("tanh",)},
    },
    marker="feed_forward",
    encoder={
        "embeddings/word_embeddings": Source("words.table"),
        "embeddings/position_embeddings": Source("places.table"),
        "embeddings/layer_norm": "first_norm",
        **{f"attention/{name}": ("step.{i}.qkv", part, 3) for part, name in enumerate(("query", "key", "value"))},
        "attention/output": "step.{i}.out",
        "attention/layer_norm": "step.{i}.norm_a",
        "feed_forward/intermediate": ("step.{i}.up", 0, 2),
        "feed_forward/gate": ("step.{i}.up", 1, 2),
        "feed_forward/output": "step.{i}.down",
        "feed_forward/layer_norm": "step.{i}.norm_b",
        "pooler": "pool",
    },
    heads={"classifier": "classes", "masked_lm/output_bias": Source("scores.bias")},
    decoder="scores",
)
