"""The groups of cases: each runs in a process of its own, so TensorFlow starts once a group."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# A name, a function, and its arguments.
Case = tuple[str, Callable[..., dict[str, Any]], *tuple[Any, ...]]


class Folders(NamedTuple):
    """Where a group reads and writes.

    Attributes:
        write: files that this version leaves for the other.
        read: files of the version before; the same as `write` in that version.
        scratch: for all else.
    """

    write: Path
    read: Path
    scratch: Path


class Group(NamedTuple):
    """One process of cases.

    Attributes:
        module: of this package, with a function `cases`.
        about: what it compares.
        options: arguments of `cases` after the folders.
        environment: variables of the process.
    """

    module: str
    about: str
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}


# The longest first, so that no core waits at the end for one of them.
GROUPS = {
    "exports": Group("exports", "exports of every kind: answers, nodes by type", {"compute": "float32"}),
    "exports-encoders": Group(
        "exports", "the same of encoders of many configurations", {"compute": "float32 encoders"}
    ),
    "exports-int8": Group("exports", "the same in int8", {"compute": "int8"}),
    "exports-bfloat16": Group("exports", "the same in bfloat16", {"compute": "bfloat16"}),
    "pretraining": Group("training", "runs of pre-training, and resumed ones", {"what": "pretraining"}),
    "finetuning": Group("training", "runs of fine-tuning, and resumed ones", {"what": "finetuning"}),
    "compression": Group("training", "runs of compression, and resumed ones", {"what": "compression"}),
    "encoders": Group("encoders", "every configuration: forward, gradients, bfloat16", {"what": "gradients"}),
    "steps": Group("encoders", "every configuration: three training steps with dropout", {"what": "steps"}),
    "graphs": Group("encoders", "one configuration of each kind in graphs, by every walk", {"what": "graphs"}),
    "models": Group("models", "every head: answers, gradients, steps"),
    "stored": Group("stored", "names on disk; .keras written before and read after; other formats"),
    "records": Group("records", "records, manifests, batches of readers"),
    "tokenizers": Group("tokenizers", "ids and offsets, Python and graph"),
    "commands": Group("commands", "--help texts and messages of refusals"),
}


def cases_of(group: str, folders: Folders) -> Iterator[Case]:
    """Returns the cases of a group, in their order."""
    module = importlib.import_module(f".{GROUPS[group].module}", __package__)
    return module.cases(folders, **GROUPS[group].options)
