"""Writes docs/reference/folders.md: what is read of the folders of other libraries.

`python -m scripts.reference` writes it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from albert_tf import model_files, published
from albert_tf.checkpoints import sentence_folders
from albert_tf.permutation import configuration as permutation
from scripts.imports import ROOT
from scripts.reference.markdown import code, table

PAGE = ROOT / "docs" / "reference" / "folders.md"
_HEAD = """# Which folders load

`albert_tf.load("folder")`, `--init_from=folder` and `serving.export --model=folder` read folders that transformers,
sentence-transformers and keras-hub wrote. Every file and key below is followed, or changes no answer. What is not here
is refused, or a warning names it. Written by
`python -m scripts.reference`, kept true by a test.
"""


def page() -> str:
    """Returns the text that docs/reference/folders.md should have."""
    fixed = published.MUST_EQUAL | permutation.MUST_EQUAL | published.MPNET_MUST_EQUAL
    values = {key: ", ".join(map(repr, fixed[key])) for key in sorted(fixed) if key != "model_type"}
    modules = [
        (kind, _codes(sentence_folders.READ.get(kind, ())), _others(keys))
        for kind, keys in sentence_folders.FIXED.items()
    ]
    parts = [
        _HEAD.strip(),
        f"## Models\n\n`model_type` is one of {_codes(published.MODEL_TYPES)}, without a head, or with one for classes,"
        " numbers, tags, choices, spans or masked words.",
        "## Files",
        table(("read", "files"), _listed(model_files.READ)),
        table(("change no answer", "files"), _listed(model_files.WITHOUT_EFFECT)),
        "## Keys of config.json\n\nSizes, activations and what else an `AlbertConfig` has are followed. A key that"
        " is nowhere here is passed over with a warning in a file of transformers, and refused in any other.",
        table(("must be", "value"), [(code(key), code(value)) for key, value in values.items()]),
        table(("change no number", "keys"), _listed(published.WITHOUT_EFFECT, sorted)),
        "## Modules of sentence-transformers\n\nA Transformer, one Pooling, any number of Dense, a Normalize, in"
        " this order. A key that is not here is refused by name.",
        table(("of", "followed", "must be, or without effect"), modules),
        f"Poolings: {_codes(sentence_folders.POOLINGS)}, one or several. Activations of Dense, and of the scores of"
        f" cross-encoders: {_codes(sentence_folders.ACTIVATIONS)}.",
    ]
    return "\n\n".join(parts) + "\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _listed(names: Mapping[str, str], order: Callable = list) -> list[tuple[str, str]]:
    return [(what, _codes(order(several.split()))) for what, several in names.items()]


def _others(keys: Mapping[str, tuple[Any, ...]]) -> str:
    said = {key: " or ".join(code(repr(value)) for value in values) for key, values in keys.items()}
    return ", ".join(f"{code(key)} {values}".strip() for key, values in said.items())
