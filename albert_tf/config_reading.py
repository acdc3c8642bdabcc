"""What the configuration files of other code bases say in the names of an AlbertConfig."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf.published import IGNORED_KEYS, MUST_EQUAL, NEARLY, ROBERTA_TYPES, XLNET, XLNET_MUST_EQUAL, XLNET_NAMES
from tfrecords.base.errors import UserError

_ONLY_ALBERT = ("embedding_size", "num_hidden_groups", "sharing", "depth_plan")
_HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_python": "gelu_erf",
    "swish": "silu",
}


def read_fields(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the fields that a configuration sets: one of ours, of google-research, of XLNet's code or HuggingFace's.

    Args:
        values: what the file holds.
        defaults: of all fields, by their names.

    Raises:
        UserError: an unknown key, or one whose value asks for another architecture.
    """
    if reason := NEARLY.get(values.get("model_type", "")):
        raise UserError(
            f"model_type '{values['model_type']}' has no exact form here: {reason}; the options nearest to it,"
            " for a model of your own, are in docs/depth.md, 'The modern block'"
        )
    from_huggingface = "model_type" in values or "transformers_version" in values
    if is_xlnet(values):
        return _xlnet(values, from_huggingface)
    _check_keys(values, defaults, MUST_EQUAL, from_huggingface)
    known = {key: value for key, value in values.items() if key in defaults}
    model_type = values.get("model_type")
    if model_type in ROBERTA_TYPES:
        padding = values.get("pad_token_id")
        known = {"position_offset": (1 if padding is None else padding) + 1} | known
    says_albert = model_type == "albert" or known.keys() & set(_ONLY_ALBERT)
    if model_type in ("bert", *ROBERTA_TYPES) or not says_albert:
        known = {"sharing": "none", "embedding_size": known.get("hidden_size", defaults["hidden_size"])} | known
    elif "num_hidden_groups" not in known and values.keys() & {"directionality", "ln_type"}:
        known["factorization"] = "word"
    if model_type == "albert" and known.get("embedding_size", 128) == known.get("hidden_size"):
        known.setdefault("always_project", True)
    if from_huggingface and isinstance(known.get("hidden_act"), str):
        known["hidden_act"] = _HUGGINGFACE_ACTIVATIONS.get(known["hidden_act"], known["hidden_act"])
    return known


def nearest(name: str, names: Iterable[str]) -> str:
    """Gives the end of a message that asks for the nearest of some names; "" where none is near."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def is_xlnet(values: Mapping[str, Any]) -> bool:
    """Tells whether a configuration file is XLNet's: HuggingFace's, or its own code's (`xlnet_config.json`)."""
    return values.get("model_type") == "xlnet" or {"d_model", "n_layer"} <= values.keys()


def _xlnet(values: Mapping[str, Any], from_huggingface: bool) -> dict[str, Any]:
    """The fields of an XLNet, the gelu of whose own code is the tanh form (zihangdai/xlnet modeling.py:9)."""
    _check_keys(values, XLNET_NAMES, XLNET_MUST_EQUAL, from_huggingface)
    known = {XLNET_NAMES[key]: value for key, value in values.items() if key in XLNET_NAMES}
    known["attention_probs_dropout_prob"] = known.setdefault("hidden_dropout_prob", XLNET["hidden_dropout_prob"])
    # None and -1 are their words for none.
    for name in ("memory_length", "reuse_length", "clamp_length"):
        known[name] = max(known.get(name) or 0, 0)
    if known.get("head_size") not in (None, known["hidden_size"] // known["num_attention_heads"]):
        raise UserError(f"d_head {known['head_size']} is another architecture; a head has d_model / n_head numbers")
    known.pop("head_size", None)
    known = XLNET | {"embedding_size": known["hidden_size"]} | known
    if from_huggingface and isinstance(known["hidden_act"], str):
        known["hidden_act"] = _HUGGINGFACE_ACTIVATIONS.get(known["hidden_act"], known["hidden_act"])
    return known


def _check_keys(values: Mapping[str, Any], names: Iterable[str], fixed: Mapping[str, tuple], is_theirs: bool) -> None:
    """Raises UserError for a key that is none of `names`, ignored or `fixed`, or fixed to another value."""
    for key, value in values.items():
        if key in names:
            continue
        if key in fixed:
            if value not in fixed[key]:
                raise UserError(f"{key} {value!r} is another architecture; supported: {fixed[key]}")
        elif key not in IGNORED_KEYS and not (is_theirs and key.startswith("_")):
            raise UserError(f"unknown configuration key '{key}'{nearest(key, names)}")
