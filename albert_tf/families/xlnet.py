"""XLNet, in transformers' form (modeling_xlnet.py); its own code's is in `checkpoints.official_xlnet`."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import BASE, DROPOUT, LARGE, UNSHARED, Family, Source
from tfrecords.base.errors import UserError

# There is no table of positions; the number of positions only limits the length of the commands' rows.
_FIELDS = UNSHARED | DROPOUT | dict(position_type="relative", hidden_act="gelu", type_vocab_size=4)
_RELEASED = _FIELDS | dict(vocab_size=32000)
_OTHER_NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
# Attention's kernels, the output layer's too.
_KERNEL = ("hidden_size", "num_attention_heads", "head_size")


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    fields["attention_probs_dropout_prob"] = fields["hidden_dropout_prob"]
    # They write None or -1 for none.
    lengths = ("memory_length", "reuse_length", "clamp_length")
    fields |= {name: 0 for name in lengths if fields.get(name) in (None, -1)}
    size, heads, width = fields.pop("head_size", None), fields.get("num_attention_heads"), fields.get("hidden_size")
    if size is not None and not (type(heads) is type(size) is int and heads * size == width):
        raise UserError(f"d_head {size} is another architecture; a head has d_model / n_head numbers")
    return fields


def _attention(name: str, **options: Any) -> Source:
    return Source(f"layer.{{i}}.rel_attn.{name}", **options)


XLNET = Family(
    model_types=("xlnet",),
    class_name="XLNet",
    prefix="transformer.",
    known_by=(("d_model", "n_layer"),),
    config_file="xlnet_config.json",
    keys={
        **{"n_token": "vocab_size", "vocab_size": "vocab_size", "d_model": "hidden_size"},
        **{"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "d_head": "head_size"},
        **{"d_inner": "intermediate_size", "ff_activation": "hidden_act", "attn_type": "attention_type"},
        **{"dropout": "hidden_dropout_prob", "clamp_len": "clamp_length", "mem_len": "memory_length"},
        **{"reuse_len": "reuse_length"},
        # In transformers, other names of the same.
        **{key: key for key in _OTHER_NAMES},
        **{key: key for key in ("initializer_range", "layer_norm_eps", "tie_word_embeddings")},
    },
    # Reversed rows are marked by a feature.
    fixed={
        **{"bi_data": (False,), "same_length": (False,)},
        **{"summary_type": ("last",), "summary_use_proj": (True,), "summary_activation": ("tanh",)},
    },
    fields=_FIELDS,
    read=_read,
    written={
        **{"untie_r": True, "bi_data": False, "same_length": False, "summary_type": "last", "summary_use_proj": True},
        "clamp_len": lambda config: config.clamp_length or -1,
        "mem_len": lambda config: config.memory_length or None,
        "reuse_len": lambda config: config.reuse_length or None,
    },
    unwritten=("n_token", *_OTHER_NAMES),
    form={"position_type": ("relative",), "is_plain": (True,)},
    marker="position_type",
    encoder={
        "embeddings/word_embeddings": Source("word_embedding.weight"),
        "embeddings/mask_embedding": Source("mask_emb", shape=(1, 1, "hidden_size")),
        **{f"attention/{name}/kernel": _attention(name[0], shape=_KERNEL) for name in ("query", "key", "value")},
        "attention/output/kernel": _attention("o", transposed=True, shape=_KERNEL),
        "attention/relative/kernel": _attention("r", shape=_KERNEL),
        "attention/content_bias": _attention("r_w_bias"),
        "attention/position_bias": _attention("r_r_bias"),
        "attention/segment_bias": _attention("r_s_bias"),
        "attention/segment_embeddings": _attention("seg_embed"),
        "attention/layer_norm": "layer.{i}.rel_attn.layer_norm",
        "feed_forward/intermediate": "layer.{i}.ff.layer_1",
        "feed_forward/output": "layer.{i}.ff.layer_2",
        "feed_forward/layer_norm": "layer.{i}.ff.layer_norm",
    },
    heads={
        **{"pooler": "sequence_summary.summary", "classifier": "classifier", "span": "qa_outputs"},
        **{"start": "start_logits.dense", "end_hidden": "end_logits.dense_0", "end_norm": "end_logits.LayerNorm"},
        **{"end": "end_logits.dense_1", "answer_hidden": "answer_class.dense_0", "answer": "answer_class.dense_1"},
        "masked_lm/output_bias": Source("lm_loss.bias"),
    },
    of_texts={"classifier": "logits_proj"},
    decoder="lm_loss",
    classes={"words": "LMHeadModel", "spans": "ForQuestionAnsweringSimple", "joint_spans": "ForQuestionAnswering"},
    named={
        "xlnet_base": BASE | _RELEASED | dict(embedding_size=768),
        "xlnet_large": LARGE | _RELEASED | dict(embedding_size=1024),
        # An unpublished ALBERT form: one block, and factorized embeddings.
        "albert_xlnet_base": BASE | _RELEASED | dict(sharing="all", embedding_size=128),
    },
)
