"""The page of the fields of a configuration: those of the core, and those of each extension."""

import ast
import dataclasses
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.extension import GATE
from albert_tf.registry import REGISTRY, extension_class
from scripts.reference import sources
from scripts.reference.markdown import code, docstring, table

_HEAD = """# Configuration fields

A configuration is one flat JSON object, `albert_config.json` or `config.json`. `AlbertConfig.named("albert_base_v2")`
is a published one, `config.replace(...)` changes fields, and `AlbertConfig.from_json(file)` reads files of
google-research, Hugging Face and this library. An unknown key is an error that names the nearest known one.
"""
_SIZES = {
    "vocab_size": "Pieces of the vocabulary.",
    "embedding_size": "Width of the table of words.",
    "hidden_size": "Width of the vectors between steps.",
    "num_hidden_layers": "Number of depth steps.",
    "num_attention_heads": "Heads of attention; `hidden_size` must be a multiple.",
    "intermediate_size": "Width inside the feed-forward half.",
    "hidden_act": "Activation function: `gelu` is ALBERT's tanh form, `gelu_erf` the exact one.",
    "hidden_dropout_prob": "Dropout of embeddings and of the output of each half.",
    "attention_probs_dropout_prob": "Dropout of attention's probabilities.",
    "max_position_embeddings": "Rows of the table of positions: the longest row of tokens.",
    "type_vocab_size": "Number of segment ids.",
    "initializer_range": "Standard deviation of initial weights.",
    "layer_norm_eps": "Added to the variance in norms.",
}


def pages() -> dict[str, str]:
    """Returns the page by its path below docs/reference."""
    described = _attributes(AlbertConfig) | _SIZES
    fields = [one for one in dataclasses.fields(AlbertConfig) if one.name not in ("extensions", "unused")]
    core = table(("field", "default", ""), [_row(field, described) for field in fields])
    parts = [
        _HEAD.strip(),
        core,
        "## Extensions",
        "An extension is active if its first key has another value than its default.",
    ]
    return {"configuration.md": "\n\n".join([*parts, *map(_extension, REGISTRY)])}


def _row(field: dataclasses.Field, described: dict[str, str]) -> list[str]:
    default = "" if field.default in ("", dataclasses.MISSING) else code(_json(field.default))
    text = described.get(field.name, "")
    return [code(field.name), default, text[:1].upper() + text[1:]]


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _attributes(cls: type) -> dict[str, str]:
    """Returns the entries of "Attributes" in the docstring of a class, by their names."""
    text = docstring(cls.__doc__).partition("**Attributes**\n\n")[2].split("\n\n")[0]
    entries = (line.removeprefix("- ").partition("`: ") for line in text.split("\n") if line.startswith("- `"))
    return {name.strip("`"): said for name, _, said in entries}


def _extension(name: str) -> str:
    entry, cls = REGISTRY[name], extension_class(name)
    described = _attributes(cls)
    fields = [one for one in dataclasses.fields(cls) if one.name in entry.keys]
    module = sources.tree(cls.__module__)
    parts = [f"### {name.replace('_', ' ').capitalize()}", docstring(ast.get_docstring(module))]
    parts.append(table(("field", "default", "values", ""), [_extension_row(field, cls, described) for field in fields]))
    if conflicts := cls().conflicts():
        lines = [f"- {code(key)}: {why}" for key, why in conflicts.items()]
        parts.append("\n".join(["Cannot be combined with:", "", *lines]))
    return "\n\n".join(parts)


def _extension_row(field: dataclasses.Field, cls: Any, described: dict[str, str]) -> list[str]:
    key, default, text = _row(field, described)
    values = ", ".join(code(_json(value)) for value in cls.choices.get(field.name, ()))
    return [key, default, values or (cls.limits | GATE).get(field.name, ("",))[0], text]
