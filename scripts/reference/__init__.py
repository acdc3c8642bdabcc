"""The generated pages of docs/reference."""

from pathlib import Path

from scripts.imports import ROOT

FOLDER = ROOT / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Returns the text of every generated page by its path; the command adds folders and clients."""
    from scripts.reference import api, commands, configuration, environment, servers

    found = {}
    for part in (api, commands, configuration, environment, servers):
        found |= part.pages()
    note = "Written by `python -m scripts.reference`.\n"
    return {FOLDER / path: f"{text.rstrip()}\n\n---\n\n{note}" for path, text in found.items()}
