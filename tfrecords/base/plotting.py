"""Draws names on plots: in fonts that have their characters, wrapped, and in legends beside the axes."""

import contextlib
import functools
import sys
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator

from matplotlib import font_manager, rc_context

# Width of a line in letters; a Chinese character counts two.
_LINE = 40
_DEFAULT = "DejaVu Sans"
# matplotlib's own last resort has a box for every character.
_BOXES = "Last Resort"


@contextlib.contextmanager
def fonts_for(texts: Iterable[str]) -> Iterator[None]:
    """Makes matplotlib use installed fonts with the characters of `texts`; warns once of characters without a font.

    Dollar signs are text, too.
    """
    families, missing = _families(frozenset("".join(texts)))
    if missing:
        _tell(missing)
    with rc_context({"font.family": families, "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@functools.cache
def _families(characters: frozenset[str]) -> tuple[list[str], str]:
    wanted = {ord(character) for character in characters if character.isprintable()}
    wanted -= _characters_of(font_manager.findfont(_DEFAULT))
    families = [_DEFAULT]
    entries = font_manager.fontManager.ttflist if wanted else []
    for entry in sorted(entries, key=lambda entry: (entry.style != "normal", entry.weight != 400, entry.name)):
        if entry.name not in families and not entry.name.startswith(_BOXES):
            if found := wanted & _characters_of(entry.fname):
                families.append(entry.name)
                wanted -= found
            if not wanted:
                break
    return families, chr(min(wanted)) if wanted else ""


def _characters_of(path: str) -> set[int]:
    try:
        return set(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):  # A damaged font, or one of pictures alone.
        return set()


@functools.cache
def _tell(missing: str) -> None:
    print(
        f"no installed font has '{missing}', so plots show boxes for it and its like; install one that has, for "
        "Chinese for example: apt install fonts-noto-cjk",
        file=sys.stderr,
    )


def wrapped(name: str, line_width: int = _LINE) -> str:
    """Wraps a name to at most three lines; "…" replaces the rest of a longer one."""
    width = line_width // 2 if _width(name) > len(name) else line_width
    return "\n".join(textwrap.wrap(name, width, max_lines=3, placeholder="…"))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def legend_beside(figure, handles: list, labels: list[str]) -> None:
    """Puts a legend right of all axes and enlarges the figure, whose layout must be "constrained"."""
    labels = [wrapped(label) for label in labels]
    lines = sum(label.count("\n") + 1 for label in labels)
    widest = max((_width(line) for label in labels for line in label.split("\n")), default=0)
    width, height = figure.get_size_inches()
    # Letters of 8 points are about 0.07 inches wide, lines 0.175 high.
    figure.set_size_inches(width + 0.6 + 0.07 * widest, max(height, 0.4 + 0.175 * lines))
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
