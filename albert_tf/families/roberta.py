"""RoBERTa, XLM-RoBERTa and CamemBERT, which differ in their vocabularies."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import (
    BASE,
    BERT_LAYERS,
    DROPOUT,
    LARGE,
    OF_SHARING,
    OWN_POOLER,
    ROBERTA_HEADS,
    UNSHARED,
    Family,
)

# The released configurations: 512 tokens after two unused rows, one segment type, transformers' exact gelu.
_RELEASED = dict(vocab_size=50265, max_position_embeddings=514, position_offset=2, type_vocab_size=1)
_RELEASED |= DROPOUT | UNSHARED | dict(layer_norm_eps=1e-5, hidden_act="gelu_erf")


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    padding = values.get("pad_token_id")
    padding = 1 if padding is None else padding
    # Another kind of value is no offset, as the configuration says.
    return {"position_offset": padding + 1 if type(padding) is int else padding} | fields


ROBERTA = Family(
    model_types=("roberta", "xlm-roberta", "camembert"),
    class_name="Roberta",
    prefix="roberta.",
    fields=UNSHARED,
    defaults={"hidden_act": "gelu"} | DROPOUT,
    read=_read,
    # Positions are counted from it.
    written={"pad_token_id": lambda config: config.position_offset - 1},
    unwritten=OF_SHARING,
    form={"position_offset": range(1, 1 << 31), "is_plain": (True,), "type_vocab_size": range(1, 1 << 31)},
    marker="position_offset",
    encoder=BERT_LAYERS,
    heads=ROBERTA_HEADS,
    of_texts=OWN_POOLER,
    decoder="lm_head.decoder",
    word_act="gelu_erf",
    bos_is_cls=True,
    named={
        "roberta_base": BASE | _RELEASED | dict(embedding_size=768),
        "roberta_large": LARGE | _RELEASED | dict(embedding_size=1024),
    },
)
