"""NomicBERT: BERT with rotary positions, gated units, and biases of norms alone; nomic-embed-text 1 and 1.5."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import (
    BERT_KEYS,
    TASK_HEADS,
    Source,
    joined,
    read_rotary,
    rotary_family,
    tables,
)
from tfrecords.base.errors import UserError

# Names of GPT-2's, in files of the model's own code (nomic-ai/contrastors), and what these must say: its defaults are
# others.
_OLD = {
    **{"n_embd": "hidden_size", "n_inner": "intermediate_size", "n_layer": "num_hidden_layers"},
    **{"n_head": "num_attention_heads", "n_positions": "max_position_embeddings"},
    **{"layer_norm_epsilon": "layer_norm_eps", "resid_pdrop": "hidden_dropout_prob"},
    "attn_pdrop": "attention_probs_dropout_prob",
}
_BARE = {"rotary_emb_fraction": (1,)} | dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), (False,))
_NEEDED = (*list(_OLD)[:6], *_BARE, "activation_function", "rotary_emb_base")
_GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    old = [key for key in _OLD if key in values]
    if not old:
        return read_rotary(values, fields, 1000.0)
    if new := [key for key in (*_OLD.values(), "hidden_act", "rope_parameters", "rope_theta") if key in values]:
        raise UserError(f"{old[0]} and {new[0]} are of two forms of this file; leave one out")
    if missing := [key for key in _NEEDED if values.get(key) is None]:
        raise UserError(f"{missing[0]} is missing beside {old[0]}; its default is another architecture")
    act, inside = values["activation_function"], values["n_inner"]
    if act not in _GATES:
        raise UserError(f"activation_function {act!r} is another architecture; supported: {', '.join(_GATES)}")
    inside = -(-inside // 256) * 256 if type(inside) is int else inside
    return read_rotary(
        values, fields | {"hidden_act": _GATES[act], "intermediate_size": inside}, values["rotary_emb_base"]
    )


_LAYER = "encoder.layers.{i}"
NOMIC = rotary_family(
    model_types=("nomic_bert",),
    class_name="NomicBert",
    prefix="nomic_bert.",
    other_prefixes=("bert.",),
    keys=BERT_KEYS | _OLD,
    fixed={
        **_BARE,
        **dict.fromkeys(("prenorm", "rotary_emb_interleaved", "causal", "use_rms_norm", "parallel_block"), (False,)),
        **dict.fromkeys(("rotary_emb_scale_base", "rotary_scaling_factor"), (None,)),
        **{"num_experts": (0, None), "moe_every_n_layers": (0, -1), "scale_attn_weights": (True,)},
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    others="""
activation_function rotary_emb_base embd_pdrop dense_seq_output fused_bias_fc fused_dropout_add_ln max_trained_positions
pad_vocab_size_multiple parallel_block_tied_norm reorder_and_upcast_attn summary_activation summary_first_dropout
summary_proj_to_labels summary_type summary_use_proj use_flash_attn use_xentropy
""",
    fields=dict(without_bias="dense"),
    defaults=dict(hidden_act="silu", max_position_embeddings=2048),
    read=_read,
    unwritten=tuple(_OLD),
    form={"type_vocab_size": range(1, 1 << 31)},
    encoder={
        **tables("embeddings.", "word", positions=""),
        "embeddings/layer_norm": "emb_ln",
        **joined(f"{_LAYER}.attn.Wqkv"),
        "attention/output": f"{_LAYER}.attn.out_proj",
        "attention/layer_norm": f"{_LAYER}.norm1",
        "feed_forward/intermediate": f"{_LAYER}.mlp.fc12",
        "feed_forward/gate": f"{_LAYER}.mlp.fc11",
        "feed_forward/output": f"{_LAYER}.mlp.fc2",
        "feed_forward/layer_norm": f"{_LAYER}.norm2",
        "pooler": "pooler.dense",
    },
    heads=TASK_HEADS
    | {
        "masked_lm/dense": "cls.predictions.transform.dense",
        "masked_lm/layer_norm": "cls.predictions.transform.layer_norm",
        "masked_lm/output_bias": Source("cls.predictions.bias"),
    },
    decoder="cls.predictions.decoder",
)
