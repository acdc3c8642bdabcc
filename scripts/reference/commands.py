"""A page for each command: its flags in groups, from the settings class that the command reads."""

import ast
import dataclasses
import fnmatch
import importlib
import os
import re
import runpy
import tomllib
import typing
from collections.abc import Mapping
from typing import Any
from unittest import mock

from scripts.imports import ROOT
from scripts.reference import sources
from scripts.reference.markdown import code, table
from serving.commands import COMMANDS

_INTRO = "A flag is written `--name=value`; a flag that is true or false also `--name` or `--noname`."
_FILE = " `--settings=FILE` reads flags from a JSON file; flags on the command line win."
# A flag is in the first group that has a pattern for it.
_GROUPS: Mapping[str, str] = {
    "Records of permutations (XLNet)": "reuse_length mask_alpha mask_beta bi_data streams memory_length perm_size",
    "Second phase": "second_*_data second_from_step second_train_batch_size",
    "Task phase": "task_train_* task_learning_rate task_distillation_weight",
    "Teacher": "teacher distillation_weight temperature",
    "Loss terms": "*_weight map_states cache_gb held_out_rows",
    "What is cut": "embedding_size energy plan lora_* block align layers vocab_from vocab_size table",
    "Early exit": "early_exit learned_exit exit_*",
    "Columns of tables": "*_column text_field fields",
    "Batching and limits": "max_batch_* max_in_flight max_queued_tokens max_inputs max_body_bytes max_held_bytes "
    "enable_batching batching_* enable_per_model_batching* rest_api_max_body_bytes grpc_max_threads "
    "rest_api_num_threads",
    "Tokenizer": "*tokenizer lower_case keep_accents max_unknown_share character_coverage hard_vocab_limit kind",
    "Masks and pairs": "max_predictions_per_seq masking masked_lm_prob ngram whole_words word_rule pair_task "
    "input_format short_seq_* dupe_factor held_out_fraction",
    "Corpus": "split_sentences line_documents min_sentences max_bad_lines max_lines text_file",
    "Speed and memory": "train_batch_size eval_batch_size batch_size gradient_accumulation_steps memory_gb "
    "dtype_policy jit_compile fused_attention walk strategy shuffle_window files_at_once pack_rows length_buckets "
    "workers runner chunk_megabytes gzip compute padding performance_hint other_cpu calibration_text "
    "tensorflow_* num_tflite_* prefer_tflite_model xla_* mixed_precision",
    "Length of the run": "num_train_* max_hours early_stopping save_checkpoints_steps log_steps max_skipped_updates "
    "max_eval_steps seed seeds dryrun",
    "Optimizer": "optimizer learning_rate* poly_power weight_decay_rate beta_? epsilon global_clipnorm gradient_norm "
    "num_warmup_steps albert_dropout classifier_dropout class_weights random_depth_min",
    "Answers": "top_k doc_stride max_query_length num_choices dimensions check_numbers span_head prompt_name "
    "truncate_left outputs keep format signature",
    "Warm-up": "warm_up_* enable_model_warmup num_request_iterations_for_warmup",
    "Load": "scenario arrival clients rate protocols find_rate bound_ms lengths batches mixed seconds warmup_seconds "
    "windows least_requests processes connections",
    "Connection": "target tls root_certificates client_* open_ports server_name compression timeout_s *port "
    "bind_address grpc_* rest_api_* ssl_config_file api_key_file gateway_* root_path cors_origins drain_* "
    "use_alts_credentials",
    "Models and versions": "model_* *_load_* load_retry* num_unload_threads file_system_poll* "
    "allow_version_labels* version label enable_signature* saved_model_tags flush_filesystem_caches remove_unused*",
}
_MAIN, _REQUIRED, _MUST = "Input and output", "Required", "must be given"
# Its flags are read as tensorflow_model_server reads them.
_SERVER = "serving.model_server.__main__"


@dataclasses.dataclass(frozen=True)
class Flag:
    """Describes a flag as its page shows it."""

    name: str
    default: str
    values: str
    help: str


def pages() -> dict[str, str]:
    """Returns the pages of all commands by their paths below docs/reference."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    scripts = {target.removesuffix(":run").removesuffix(".__main__"): script for script, target in scripts.items()}
    found, lines = {}, list[list[str]]()
    for name, (package, summary) in COMMANDS.items():
        module = package if (ROOT / f"{package.replace('.', '/')}.py").is_file() else f"{package}.__main__"
        summary = f"{summary[:1].upper()}{summary[1:]}."
        others = [code(other) for other in (scripts.get(package), f"python -m {package}") if other]
        names = f"The same command: {', '.join(others)}."
        shell = f"```\nalbert-tf {name} --help\n```"
        intro = _INTRO if module == _SERVER else _INTRO + _FILE
        tables = _tables(module, sources.tree(module))
        found[f"commands/{name}.md"] = "\n\n".join([f"# albert-tf {name}", summary, shell, names, intro, *tables])
        lines.append([f"[albert-tf {name}](commands/{name}.md)", summary, ", ".join(others)])
    head = "# Commands\n\nThe pages list all flags.\n\n"
    return {"commands.md": head + table(("command", "", "the same command"), lines), **found}


def _tables(module: str, tree: ast.Module) -> list[str]:
    """Returns the groups of --help, and the flags that it leaves to --helpfull in the groups of this file."""
    settings = _settings_class(module, tree)
    chosen = {name: title for title, names in getattr(settings, "groups", {}).items() for name in names.split()}
    shown: dict[str, list[Flag]] = {_REQUIRED: [], **{title: [] for title in chosen.values()}}
    more: dict[str, list[Flag]] = {}
    for flag in _flags(settings):
        if flag.default == _MUST or flag.name in chosen:
            shown[_REQUIRED if flag.default == _MUST else chosen[flag.name]].append(flag)
        else:
            more.setdefault(group_of(flag.name), []).append(flag)
    order = [_MAIN, *reversed(_GROUPS)]
    parts = [f"## {title}\n\n{_flag_table(flags)}" for title, flags in shown.items() if flags]
    level = "###" if chosen else "##"
    under = ["## More flags"] if chosen and more else []
    return [*parts, *under, *(f"{level} {one}\n\n{_flag_table(more[one])}" for one in sorted(more, key=order.index))]


def group_of(name: str) -> str:
    """Returns the group that a flag is listed in.

    >>> group_of("learning_rate"), group_of("output_dir")
    ('Optimizer', 'Input and output')
    """
    found = (title for title, names in _GROUPS.items() if any(fnmatch.fnmatch(name, one) for one in names.split()))
    return next(found, _MAIN)


def _flag_table(flags: list[Flag]) -> str:
    rows = [(code(f"--{flag.name}"), flag.default, flag.values, flag.help) for flag in flags]
    return table(("flag", "default", "values", ""), rows)


def _settings_class(module: str, tree: ast.Module) -> type:
    if module == _SERVER:
        # Defaults count the CPU cores: with a number of them that no machine has they can be told apart.
        with mock.patch.object(os, "sched_getaffinity", lambda _: range(_CORES), create=True):
            return runpy.run_path(str(ROOT / "serving/model_server/flags.py"))["ServerOptions"]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "run_main"]
    (name,) = (ast.unparse(call.args[1]) for call in calls if len(call.args) > 1)
    return getattr(importlib.import_module(module), name)


_CORES = 7919
# By a part of the type's name.
_KINDS = {
    "tuple": "text, several times",
    "bool": "true or false",
    "int": "whole number",
    "float": "number",
    "str": "text",
}


def _flags(settings: type) -> list[Flag]:
    fields = [field for field in dataclasses.fields(settings) if "help" in field.metadata]
    return [
        Flag(field.metadata["flag"] or field.name, _default(field), _values(settings, field), _sentence(field))
        for field in fields
    ]


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return _MUST
    if value in (None, "", ()):
        return ""
    if value and type(value) is int and value % _CORES == 0:
        return "CPU cores" if value == _CORES else f"{value // _CORES} x CPU cores"
    return code(str(value).lower() if isinstance(value, bool) else value)


def _values(settings: type, field: dataclasses.Field) -> str:
    if field.metadata["choices"]:
        return ", ".join(map(code, field.metadata["choices"]))
    bounds: dict[str, Any] = {name: bound for name, bound in field.metadata["bounds"].items() if bound is not None}
    words = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}
    said = [
        f"{words[name]} {code('--' + bound) if isinstance(bound, str) else bound}" for name, bound in bounds.items()
    ]
    also = [f"or {value}" for value in field.metadata["also"]]
    kind = next(word for one, word in _KINDS.items() if one in str(typing.get_type_hints(settings)[field.name]))
    return " ".join(filter(None, [kind, ", ".join(said), *also]))


def _sentence(field: dataclasses.Field) -> str:
    text = field.metadata["help"].strip().rstrip(".")
    is_value = re.split(r"[ ,:;]", text)[0] in field.metadata["choices"]
    return f"{text if is_value else text[:1].upper() + text[1:]}."
