"""Writes docs/reference/folders.md: what is read of the folders of other libraries.

`python -m scripts.reference` writes it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf import model_files, published
from albert_tf.checkpoints import sentence_folders
from albert_tf.permutation import configuration as permutation
from scripts.imports import ROOT

PAGE = ROOT / "docs" / "reference" / "folders.md"
_HEAD = """# Which folders load

`albert_tf.load("folder")`, `--init_from=folder` and `serving.export --model=folder` read folders that transformers,
sentence-transformers and keras-hub wrote. Every file and key below is followed, or changes no answer. What is not here
is refused, or a warning names it. Written by
`python -m scripts.reference`, kept true by a test.
"""


def page() -> str:
    """Returns the text that docs/reference/folders.md should have."""
    kinds = ", ".join(f"`{kind}`" for kind in published.MODEL_TYPES)
    fixed = published.MUST_EQUAL | permutation.MUST_EQUAL | published.MPNET_MUST_EQUAL
    values = {key: ", ".join(map(repr, fixed[key])) for key in sorted(fixed) if key != "model_type"}
    modules = {
        kind: f"{_code(sentence_folders.READ.get(kind, ()))} | {_others(keys)}"
        for kind, keys in sentence_folders.FIXED.items()
    }
    return "\n".join(
        [
            _HEAD,
            f"## Models\n\n`model_type` is one of {kinds}, without a head, or with one for classes, numbers, tags,"
            " choices, spans or masked words.\n",
            "## Files\n",
            _table(("read", "files"), {what: _code(names.split()) for what, names in model_files.READ.items()}),
            _table(
                ("change no answer", "files"),
                {what: _code(names.split()) for what, names in model_files.WITHOUT_EFFECT.items()},
            ),
            "## Keys of config.json\n\nSizes, activations and what else an `AlbertConfig` has are followed. A key that"
            " is nowhere here is passed over with a warning in a file of transformers, and refused in any other.\n",
            _table(("must be", "value"), {f"`{key}`": f"`{value}`" for key, value in values.items()}),
            _table(
                ("change no number", "keys"),
                {why: _code(sorted(keys.split())) for why, keys in published.WITHOUT_EFFECT.items()},
            ),
            "## Modules of sentence-transformers\n\nA Transformer, one Pooling, any number of Dense, a Normalize, in"
            " this order. A key that is not here is refused by name.\n",
            _table(("of", "followed | must be, or without effect"), modules, columns=3),
            f"Poolings: {_code(sentence_folders.POOLINGS)}, one or several. Activations of Dense, and of the scores of"
            f" cross-encoders: {_code(sentence_folders.ACTIVATIONS)}.",
            "",
        ]
    )


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _others(keys: Mapping[str, tuple[Any, ...]]) -> str:
    said = {key: " or ".join(f"`{value!r}`" for value in values) for key, values in keys.items()}
    return ", ".join(f"`{key}` {values}".strip() for key, values in said.items())


def _table(head: tuple[str, str], rows: Mapping[str, str], columns: int = 2) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---" * columns + "|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows.items()), ""])
