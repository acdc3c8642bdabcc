"""ModernBERT and models of its form: Ettin, mmBERT, granite-embedding r2, gte-modernbert, modernbert-embed."""

from collections.abc import Mapping
from typing import Any

from albert_tf.families.table import SHARED_KEYS, UNSHARED, Family, Source, any_value, joined
from tfrecords.base.errors import UserError

_FULL, _LOCAL = "full_attention", "sliding_attention"
_FIELDS = UNSHARED | dict(type_vocab_size=0, position_type="rotary", norm_position="pre", feed_forward="glu")
_FIELDS |= dict(first_norm=False, pooler_norm=True)
_ACT = dict(hidden_act="gelu_erf", pooler_act="gelu_erf")
_RELEASED = _FIELDS | _ACT | dict(vocab_size=50368, max_position_embeddings=8192, layer_norm_eps=1e-5, use_bias=False)
_RELEASED |= dict(attention_window=64, global_attention_every=3, window_first_token=False)
_RELEASED |= dict(rotary_theta=160000.0, rotary_local_theta=10000.0)


def _read(values: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    bias = fields["use_bias"]
    if other := [key for key in ("attention_bias", "mlp_bias") if values.get(key, False) is not bias]:
        raise UserError(
            f"{other[0]} {values.get(other[0])!r} with norm_bias {bias!r} is another architecture; they must agree"
        )
    count, every = fields["num_hidden_layers"], values.get("global_attn_every_n_layers", 3)
    if type(every) is not int or every < 1:
        raise UserError(f"global_attn_every_n_layers must be a whole number of at least 1, not {every!r}")
    kinds = values.get("layer_types") or [_LOCAL if layer % every else _FULL for layer in range(count)]
    # The number of layers from one with full attention to the next; 0: there is none.
    plans = {n: [_LOCAL if n == 0 or layer % n else _FULL for layer in range(count)] for n in range(count + 1)}
    n = next((n for n, plan in plans.items() if plan == kinds), None)
    if n is None:
        raise UserError(
            f"layer_types {kinds} is another architecture; supported: {_FULL} at one layer in n, beginning with the"
            f" first, and {_LOCAL} at all others"
        )
    old = {_FULL: values.get("global_rope_theta", 160000.0), _LOCAL: values.get("local_rope_theta", 10000.0)}
    rotary, scaling = values.get("rope_parameters") or {}, values.get("rope_scaling")
    for kind, given in (*rotary.items(), ("rope_scaling", scaling or {})):
        kept = {key: value for key, value in given.items() if key != "rope_theta"} if isinstance(given, dict) else given
        if kind not in (*old, "rope_scaling") or kept not in ({}, {"rope_type": "default"}):
            raise UserError(
                f"rotary positions {kind} {given!r} are another architecture; supported: a rope_theta for {_FULL} and"
                f" {_LOCAL}"
            )
    full, local = (rotary.get(kind, {}).get("rope_theta", theta) for kind, theta in old.items())
    fields["rotary_theta"] = full
    window = fields.pop("attention_window")
    if n == 1:
        return fields
    if type(window) is not int or window < 2:
        raise UserError(f"local_attention must be a whole number of at least 2, not {window!r}")
    fields |= dict(attention_window=window // 2, global_attention_every=n, window_first_token=False)
    return fields | ({} if local in (None, full) else {"rotary_local_theta": local})


def _kinds(config: Any) -> list[str]:
    every, layers = config.global_attention_every, range(config.num_hidden_layers)
    is_local = [bool(config.attention_window and (every == 0 or layer % every)) for layer in layers]
    return [_LOCAL if local else _FULL for local in is_local]


def _bases(config: Any) -> dict[str, dict[str, Any]]:
    bases = {_FULL: config.rotary_theta, _LOCAL: config.rotary_local_theta or config.rotary_theta}
    return {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}


MODERNBERT = Family(
    model_types=("modernbert",),
    class_name="ModernBert",
    prefix="model.",
    keys={
        **SHARED_KEYS,
        **{"hidden_activation": "hidden_act", "norm_eps": "layer_norm_eps", "norm_bias": "use_bias"},
        **{"classifier_activation": "pooler_act", "classifier_pooling": "pooling"},
        # That of a window is half of it.
        **{"local_attention": "attention_window", "attention_dropout": "attention_probs_dropout_prob"},
        "mlp_dropout": "hidden_dropout_prob",
    },
    # In transformers, the last is another name of the window.
    fixed={"classifier_bias": (False,), "decoder_bias": (True,), "sliding_window": (None,)},
    others="""
attention_bias mlp_bias layer_types global_attn_every_n_layers rope_parameters global_rope_theta local_rope_theta
rope_scaling rope_theta layer_norm_eps position_embedding_type reference_compile repad_logits_with_grad
initializer_cutoff_factor deterministic_flash_attn sparse_prediction sparse_pred_ignore_index embedding_dropout
""",
    fields=_FIELDS,
    defaults=dict(hidden_act="gelu", pooler_act="gelu", pooling="cls", layer_norm_eps=1e-5, use_bias=False)
    | dict(attention_window=128, max_position_embeddings=8192),
    read=_read,
    # The keys of transformers 5, and those that earlier ones read.
    written={
        "local_attention": lambda config: 2 * config.attention_window or 128,
        "attention_bias": lambda config: config.use_bias,
        "mlp_bias": lambda config: config.use_bias,
        "layer_types": _kinds,
        "rope_parameters": _bases,
        "global_attn_every_n_layers": lambda config: (
            (config.global_attention_every or config.num_hidden_layers) if config.attention_window else 1
        ),
        "global_rope_theta": lambda config: config.rotary_theta,
        "local_rope_theta": lambda config: config.rotary_local_theta or config.rotary_theta,
        "pad_token_id": None,
    },
    form={
        "position_type": ("rotary",),
        "is_plain": (True,),
        **{key: (value,) for key, value in _FIELDS.items() if key != "sharing"},
        "window_first_token": lambda config: not (config.attention_window and config.window_first_token),
        **dict.fromkeys(
            ["rotary_theta", "rotary_local_theta", "attention_window", "global_attention_every"], any_value
        ),
        **dict.fromkeys(["pooler_act", "pooling", "use_bias"], any_value),
    },
    marker="position_type",
    encoder={
        "embeddings/word_embeddings": Source("embeddings.tok_embeddings.weight"),
        "embeddings/layer_norm": "embeddings.norm",
        **joined("layers.{i}.attn.Wqkv"),
        "attention/output": "layers.{i}.attn.Wo",
        "attention/layer_norm": "layers.{i}.attn_norm",
        "feed_forward/intermediate": ("layers.{i}.mlp.Wi", 0, 2),
        "feed_forward/gate": ("layers.{i}.mlp.Wi", 1, 2),
        "feed_forward/output": "layers.{i}.mlp.Wo",
        "feed_forward/layer_norm": "layers.{i}.mlp_norm",
        "final_norm": "final_norm",
    },
    heads={
        **{"pooler": "head.dense", "pooler_norm": "head.norm", "classifier": "classifier", "span": "classifier"},
        **{"masked_lm/dense": "head.dense", "masked_lm/layer_norm": "head.norm"},
        "masked_lm/output_bias": Source("decoder.bias"),
    },
    decoder="decoder",
    named={
        "modernbert_base": _RELEASED
        | dict(
            hidden_size=768, embedding_size=768, intermediate_size=1152, num_hidden_layers=22, num_attention_heads=12
        ),
        "modernbert_large": _RELEASED
        | dict(
            hidden_size=1024, embedding_size=1024, intermediate_size=2624, num_hidden_layers=28, num_attention_heads=16
        ),
    },
)
