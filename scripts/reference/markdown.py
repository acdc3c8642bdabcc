"""Markdown tables, and docstrings as Markdown."""

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example|Examples):")
_ENTRY = re.compile(r"([*\w., ]+(?: \([^)]*\))?): +(.*)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; cells may have any characters but line breaks."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def code(text: object) -> str:
    """Returns a value as code."""
    return f"`{text}`"


def docstring(text: str | None) -> str:
    """Converts a docstring with Google's sections to Markdown.

    >>> print(docstring("Adds.\\n\\nArgs:\\n    a: one number,\\n        of two.\\n    b: the other."))
    Adds.
    <BLANKLINE>
    **Args**
    <BLANKLINE>
    - `a`: one number, of two.
    - `b`: the other.
    """
    blocks, lines = [], inspect.cleandoc(text or "").split("\n")
    while lines:
        if found := _SECTION.fullmatch(lines[0].strip()):
            body = _take(lines[1:], lambda line: not line or line.startswith(" "))
            lines = lines[1 + len(body) :]
            blocks.append(f"**{found[1]}**\n\n{_section(textwrap.dedent(chr(10).join(body)).strip())}")
        else:
            body = _take(lines, lambda line: bool(line.strip()) and not _SECTION.fullmatch(line.strip()))
            lines = lines[max(1, len(body)) :]
            blocks.append(_paragraph(body))
    return "\n\n".join(filter(None, blocks))


def _take(lines: Sequence[str], belongs) -> list[str]:
    end = next((number for number, line in enumerate(lines) if not belongs(line)), len(lines))
    return list(lines[:end])


def _paragraph(lines: Sequence[str]) -> str:
    if any(line.startswith((">>> ", "    ")) for line in lines):
        kind = "pycon" if any(line.startswith(">>>") for line in lines) else "text"
        first = next(number for number, line in enumerate(lines) if line.startswith((">>> ", "    ")))
        before = " ".join(line.strip() for line in lines[:first])
        return "\n\n".join(
            filter(None, [before, "\n".join([f"```{kind}", textwrap.dedent("\n".join(lines[first:])), "```"])])
        )
    return " ".join(line.strip() for line in lines)


def _section(body: str) -> str:
    """Returns entries as a list, or the text where there is none."""
    entries = [" ".join(part.split()) for part in re.split(r"\n(?=\S)", body)]
    matches = [_ENTRY.fullmatch(entry) for entry in entries]
    if not all(matches):
        return _paragraph(body.split("\n")) if ">>>" in body else " ".join(body.split())
    return "\n".join(f"- `{found[1]}`: {found[2]}" for found in matches if found)
