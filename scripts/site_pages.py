"""Writes parts of the site while MkDocs builds it (a hook of mkdocs.yml): flags, folders that load, clients.

A page has `{{ name }}` on a line of its own where the part goes.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# The program `mkdocs` leaves the clone out.
sys.path.insert(0, str(Path(__file__).parents[1]))

from albert_tf.checkpoints import sentence_folders
from albert_tf.config import reading
from albert_tf.families import families
from albert_tf.loading import model_files
from serving.commands import COMMANDS
from tests.clients.clients import CLIENTS, version_of
from tests.clients.table import OUTCOMES, ROWS


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns the text of a page with its parts filled in."""
    return re.sub(r"(?m)^\{\{ (\w+) \}\}$", lambda found: _PARTS[found[1]](), markdown)


def flags() -> str:
    """Returns what `--helpfull` of every command prints."""
    parts = []
    for name, (module, summary) in COMMANDS.items():
        command = [sys.executable, "-m", module, "--helpfull"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        parts.append(f"## albert-tf {name}\n\n{summary[:1].upper()}{summary[1:]}.\n\n```text\n{shown.strip()}\n```")
    return "\n\n".join(parts)


def folders() -> str:
    """Returns the tables of files and keys that are read of other libraries' folders."""
    fixed = {key: value for family in families() for key, value in family.fixed.items()} | reading.MUST_EQUAL
    values = {key: ", ".join(map(repr, fixed[key])) for key in sorted(fixed)}
    modules = [
        (kind, _codes(sentence_folders.READ.get(kind, ())), _others(keys))
        for kind, keys in sentence_folders.FIXED.items()
    ]
    parts = [
        f"`model_type` is one of {_codes(name for one in families() for name in one.model_types)}.\n\n## Files",
        _table(("read", "files"), _listed(model_files.READ)),
        _table(("change no answer", "files"), _listed(model_files.WITHOUT_EFFECT)),
        "## Keys of config.json",
        _table(("must be", "value"), [(_codes([key]), _codes([value])) for key, value in values.items()]),
        _table(("change no number", "keys"), _listed(reading.WITHOUT_EFFECT, sorted)),
        "## Modules of sentence-transformers",
        _table(("of", "followed", "must be, or without effect"), modules),
        f"Poolings: {_codes(sentence_folders.POOLINGS)}. Activations: {_codes(sentence_folders.ACTIVATIONS)}.",
    ]
    return "\n\n".join(parts)


def clients() -> str:
    """Returns what each client needs, and the calls of it that are tried."""
    fences = {"Python": "python", "JavaScript": "js", "Java": "java", "command": "sh"}
    examples = [f"{one.name}:\n\n```{fences[one.language]}\n{one.example}\n```" for one in CLIENTS]
    calls = [
        (one.name, version_of(one), row.call, OUTCOMES[row.answer] if row.answer else f"refused: {row.why}")
        for one in CLIENTS
        for row in ROWS
        if row.client == one.name
    ]
    return "\n\n".join([*examples, "## Calls", _table(("client", "version", "call", "what comes back"), calls)])


_PARTS: dict[str, Callable[[], str]] = {"flags": flags, "folders": folders, "clients": clients}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed(names: Mapping[str, str], order: Callable = list) -> list[tuple[str, str]]:
    return [(what, _codes(order(several.split()))) for what, several in names.items()]


def _others(keys: Mapping[str, tuple[Any, ...]]) -> str:
    said = {key: " or ".join(map(repr, values)) for key, values in keys.items()}
    return ", ".join(f"`{key}` {values}".strip() for key, values in said.items())
