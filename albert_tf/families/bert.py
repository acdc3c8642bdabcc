"""BERT, of google-research and transformers."""

from albert_tf.families.table import (
    BASE,
    BERT_LAYERS,
    DROPOUT,
    LARGE,
    OF_SHARING,
    TASK_HEADS,
    UNSHARED,
    Family,
    Source,
)

BERT = Family(
    model_types=("bert",),
    class_name="Bert",
    prefix="bert.",
    known_by=((),),
    config_file="bert_config*.json",
    fields=UNSHARED,
    defaults={"hidden_act": "gelu"} | DROPOUT,
    unwritten=OF_SHARING,
    form={"is_plain": (True,), "type_vocab_size": range(1, 1 << 31)},
    encoder=BERT_LAYERS,
    heads=TASK_HEADS
    | {
        "masked_lm/dense": "cls.predictions.transform.dense",
        "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
        "masked_lm/output_bias": Source("cls.predictions.bias"),
        "pair": "cls.seq_relationship",
    },
    decoder="cls.predictions.decoder",
    named={
        f"bert_{size}_{case}": sizes | DROPOUT | UNSHARED | dict(vocab_size=words, embedding_size=sizes["hidden_size"])
        for case, words in (("uncased", 30522), ("cased", 28996))
        for size, sizes in (("base", BASE), ("large", LARGE))
    },
    aliases={"bert_base": "bert_base_uncased", "bert_large": "bert_large_uncased"},
)
