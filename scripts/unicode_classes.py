"""Writes the lines of tfrecords/tokenizers/unicode_classes.py from the tables of the installed `tokenizers`.

python -m scripts.unicode_classes
"""

import re
import textwrap
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

FILE = Path(__file__).parents[1] / "tfrecords" / "tokenizers" / "unicode_classes.py"
CLASSES = {"LETTERS": r"\p{L}+", "NUMBERS": r"\p{N}+"}


def ranges_of(pattern: str) -> list[tuple[int, int]]:
    """The first and last code points of the runs that the pattern matches in a text of all characters in order."""
    runs, only = pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for plane in range(17):
        codes = range(plane << 16, (plane + 1) << 16)
        text = "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
        pieces = [piece for piece, _ in runs.pre_tokenize_str(text)]
        found += [(ord(piece[0]), ord(piece[-1])) for piece in pieces if not only.pre_tokenize_str(piece[0])]
    return found


def as_text(ranges: list[tuple[int, int]]) -> str:
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in ranges)


def main() -> None:
    source = FILE.read_text()
    for name, pattern in CLASSES.items():
        lines = "\n".join(textwrap.wrap(as_text(ranges_of(pattern)), 118, break_on_hyphens=False))
        source = re.sub(rf'(?s)(_{name} = """\n).*?(\n""")', lambda found: found[1] + lines + found[2], source)  # noqa: B023
    FILE.write_text(source)


if __name__ == "__main__":
    main()
