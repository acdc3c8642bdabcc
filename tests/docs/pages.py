"""The pages of the documentation: their blocks, the commands in them, their links."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guide").glob("*.md"))
EXPLANATION = sorted((DOCS / "explanation").glob("*.md"))
# The pages with commands that a newcomer runs.
WITH_COMMANDS = [ROOT / "README.md", *GUIDES]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "BUILD.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(DOCS.rglob("*.md"))


class Block(NamedTuple):
    """A fenced block: its language ("" where there is none), its text, and the line it begins at."""

    language: str
    text: str
    line: int


def blocks(page):
    """Returns the fenced blocks of a page."""
    text = page.read_text("utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text[: match.start()].count("\n") + 1) for match in found]


def commands(text):
    """Returns the modules that lines of a shell run by `python -m`, with their arguments.

    >>> commands("A=1 python -m serving.score --model=a \\\\\\n    --input='b c' & # both\\n")
    [('serving.score', ['--model=a', '--input=b c'])]
    """
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.replace("$PWD", "/here"), comments=True)
        for place, word in enumerate(words[:-1]):
            if word == "-m" and words[place - 1].endswith("python") and words[place + 1] != "venv":
                rest = words[place + 2 :]
                end = next((n for n, w in enumerate(rest) if w in ("&", "|", "&&", ">")), len(rest))
                found.append((words[place + 1], rest[:end]))
    return found


def without_blocks(page):
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """Returns the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def links(page):
    """Returns where the links and pictures of a page lead, outside of its blocks and `code`."""
    text = re.sub(r"`[^`\n]*`", "code", without_blocks(page))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def is_broken(page, link):
    """Whether a link of a page leads to no file of the repository, or to no heading of it."""
    if re.match(r"(https?|mailto):", link):
        return False
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))
