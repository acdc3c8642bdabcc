"""Reads configuration files of other code bases."""

import dataclasses
import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from albert_tf.config.registry import KEYS
from albert_tf.families import Family, families
from tfrecords.base.errors import UserError, nearest
from tfrecords.base.files import read_json
from tfrecords.base.hub import MODULES, Fetch, find, inner_folder, nothing_read

Config = TypeVar("Config")
NAMED = {name: values for family in families() for name, values in family.named.items()}
OTHER_NAMES = {name: other for family in families() for name, other in family.aliases.items()}
# The files of published folders that hold a configuration.
CONFIG_FILES = " ".join(["config.json", *(family.config_file for family in families() if family.config_file)])

# Keys of published files whose only supported value has no effect on the encoder.
MUST_EQUAL: dict[str, tuple] = {
    "down_scale_factor": (1, 1.0),
    "num_memory_blocks": (0,),
    "net_structure_type": (0,),
    "gap_size": (0,),
    "layers_to_keep": ([],),
    "ln_type": ("postln",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({},),
    "chunk_size_feed_forward": (0,),
    "per_layer_config": (None,),
    "quantization_config": (None,),
}

# Keys of config.json without effect on an encoder's or head's results, by reason.
WITHOUT_EFFECT: dict[str, str] = {
    "ids of special tokens, which the tokenizer says": """
bos_token_id cls_token_id decoder_start_token_id eos_token_id eos_token_ids mask_token_id pad_token_id sep_token_id
unk_token_id""",
    "of heads, read with them": """
architectures finetuning_task id2label label2id num_labels problem_type sbert_ce_default_activation_function
sentence_transformers""",
    "of training": """
classifier_dropout classifier_dropout_prob gradient_checkpointing summary_last_dropout use_bfloat16 use_mems_train
pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type""",
    "of text generation": """
bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id is_composition length_penalty max_length
min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences prefix remove_invalid_values
repetition_penalty start_n_top end_n_top suppress_tokens task_specific_params temperature tie_encoder_decoder top_k
top_p typical_p untie_r use_mems use_mems_eval""",
    "of the program that runs the model": """
attn_implementation directionality dtype experts_implementation output_attentions output_hidden_states output_past
output_scores return_dict return_dict_in_generate tf_legacy_loss torch_dtype torchscript transformers.js_config
use_cache use_return_dict xla_device""",
    "names and versions": """
adapters emb_size label_list language model_name name name_or_path tokenizer_class transformers_version""",
}
IGNORED_KEYS = frozenset(" ".join(WITHOUT_EFFECT.values()).split())
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")

_HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_python": "gelu_erf",
    "swish": "silu",
}


def read_name(make: Callable[..., Config], name: str) -> Config:
    """Implements `AlbertConfig.named`."""
    name = OTHER_NAMES.get(name, name)
    if name not in NAMED:
        # A short name resembles more words than the intended long one.
        near = nearest(name, [*NAMED, *OTHER_NAMES])
        near = re.sub(r"'(.*)'", lambda found: f"'{OTHER_NAMES.get(found[1], found[1])}'", near)
        raise UserError(f"no configuration is called '{name}'{near}; known: {', '.join(NAMED)}")
    return make(**NAMED[name])


def find_config(name: str) -> Path | None:
    """Returns the configuration file for the path or hub model `name`; None for other names."""
    found = find(name, _needed)
    if name.endswith(".json") or not found.is_dir():
        return found if name.endswith(".json") else None
    inside = found / inner_folder(os.listdir(found), found.joinpath)
    names = _of_config(os.listdir(inside))
    if not names:
        raise UserError(f"the folder '{name}' holds no configuration ({', '.join(CONFIG_FILES.split())})")
    return inside / names[0]


def _of_config(names: Sequence[str]) -> list[str]:
    return [name for pattern in CONFIG_FILES.split() for name in sorted(fnmatch.filter(names, pattern))]


def _needed(name: str, listed: Sequence[str], fetch: Fetch) -> list[str]:
    inside = inner_folder(listed, fetch)
    names = _of_config([file.removeprefix(inside) for file in listed if file.startswith(inside)])
    if not names:
        raise nothing_read(name, listed, "configuration that is")
    return [*(file for file in (MODULES,) if file in listed), f"{inside}{names[0]}"]


def read_values(make: Callable[..., Config], values: Mapping[str, Any], where: str = "") -> Config:
    """Implements `AlbertConfig.from_dict`; `where` names the file in warnings."""
    own = [field for field in dataclasses.fields(make) if field.name not in ("extensions", "unused")]
    defaults = {field.name: field.default for field in own} | dict.fromkeys(KEYS)
    return make(**read_fields(values, defaults, where))


def read_file(make: Callable[..., Config], path: str | os.PathLike, model_type: str | None) -> Config:
    """Implements `AlbertConfig.from_json`."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"'{path}' holds no JSON object")
    if model_type is not None:
        values.setdefault("model_type", model_type)
    try:
        check_kind(values)
        keys = _family_of(values).keys
        said = list(values) if keys is None else [keys.get(key) for key in values]
        missing = [key for key in _SIZES if key not in said]
        if not missing:
            return read_values(make, values, str(path))
    except UserError as error:
        raise UserError(f"'{path}': {error}") from error
    kinds = values.get("architectures")
    described = f"; it describes a {kinds[0]}" if isinstance(kinds, list) and kinds else ""
    raise UserError(f"'{path}' lacks {', '.join(missing)}{described}")


def read_fields(values: Mapping[str, Any], defaults: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Translates an official or HuggingFace configuration to AlbertConfig's fields."""
    check_kind(values)
    family, is_theirs = _family_of(values), "model_type" in values or "transformers_version" in values
    names = family.keys
    if names is None:
        # The later fields that families with keys of their own have are no keys of others.
        later = list(defaults)[list(defaults).index("position_offset") :] if is_theirs else []
        own = {key for one in families() for key in (*one.fixed, *(one.form if one.keys is not None else ()))}
        names = {key: key for key in defaults if key not in own.intersection(later)}
    _check_keys(values, names, family, is_theirs, where)
    known = dict[str, Any]()
    for key in (key for key in values if key in names):
        if known.setdefault(names[key], values[key]) != values[key]:
            raise UserError(f"{key} {values[key]!r} and another key for {names[key]} disagree; leave one out")
    known = {**family.fields, **(family.defaults if is_theirs else {}), **known}
    if not family.is_factorized:
        known = {"embedding_size": known.get("hidden_size", defaults["hidden_size"])} | known
    known = family.read(values, known)
    for key in ("hidden_act", "pooler_act") if is_theirs else ():
        if isinstance(known.get(key), str):
            known[key] = _HUGGINGFACE_ACTIVATIONS.get(known[key], known[key])
    return known


def _family_of(values: Mapping[str, Any]) -> Family:
    if (kind := values.get("model_type")) is not None:
        return next(one for one in families() if kind in one.model_types)
    # Of those whose keys are there, the one that needs most.
    fitting = [(len(keys), one) for one in families() for keys in one.known_by if values.keys() >= set(keys)]
    return max(fitting, key=lambda pair: pair[0])[1]


def check_kind(values: Mapping[str, Any], where: str = "") -> None:
    """Raises UserError if a configuration's model_type is not supported; `where` names its model."""
    kind, said = values.get("model_type"), f"'{where}': " if where else ""
    known = [name for family in families() for name in family.model_types]
    if kind is not None and kind not in known:
        raise UserError(f"{said}model_type {kind!r} is not supported; it must be one of {', '.join(known)}")


def _check_keys(values: Mapping[str, Any], names: Iterable[str], family: Family, is_theirs: bool, where: str) -> None:
    unknown, fixed, ignored = list[str](), {**MUST_EQUAL, **family.fixed}, {*IGNORED_KEYS, *family.others.split()}
    for key, value in values.items():
        if key in names:
            continue
        if key in fixed and key not in ignored:
            if value not in fixed[key]:
                raise UserError(f"{key} {value!r} is another architecture; supported: {fixed[key]}")
        elif key not in ("model_type", *ignored) and not (is_theirs and key.startswith("_")) and key != "auto_map":
            unknown.append(key)
    if not unknown:
        return
    misspelt = [key for key in unknown if difflib.get_close_matches(key, list(names), n=1, cutoff=0.85)]
    for key in misspelt if is_theirs else unknown:
        raise UserError(f"unknown configuration key '{key}'{nearest(key, names)}")
    if "auto_map" in values:
        raise UserError(f"unknown configuration key '{unknown[0]}' of a model with code of its own (auto_map)")
    said = f"'{where}': " if where else ""
    logging.warning("%skeys that transformers does not know either are passed over: %s", said, ", ".join(unknown))
