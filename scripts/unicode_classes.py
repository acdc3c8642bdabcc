"""Writes the tables of characters in tfrecords/tokenizers as the installed `tokenizers` has them.

python -m scripts.unicode_classes
"""

import re
import textwrap
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = Path(__file__).parents[1] / "tfrecords" / "tokenizers"
CLASSES = {"LETTERS": r"\p{L}+", "NUMBERS": r"\p{N}+"}
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


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


def runs_of(characters: Iterable[str]) -> list[tuple[int, int]]:
    """Returns the first and last code points of the runs of characters, which are in order."""
    runs = list[tuple[int, int]]()
    for code in map(ord, characters):
        if runs and runs[-1][1] == code - 1:
            runs[-1] = runs[-1][0], code
        else:
            runs.append((code, code))
    return runs


def as_text(ranges: list[tuple[int, int]]) -> str:
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in ranges)


def library_tables() -> dict[str, str]:
    """Returns the tables of `library_characters`, by name."""
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}

    def bert(name: str) -> dict[str, str]:
        step = normalizers.BertNormalizer(**off | {name: True})
        return {one: step.normalize_str(one) for one in CHARACTERS}

    lower, step = bert("lowercase"), pre_tokenizers.BertPreTokenizer()
    others = [(ord(one), ord(new)) for one, new in lower.items() if one.lower() != new]
    runs = dict[int, list[int]]()
    for code, new in others:
        runs.setdefault(new - code, []).append(code)
    by_shift = (
        f"{as_text([run])}>{run[0] + shift:x}" for shift, codes in runs.items() for run in runs_of(map(chr, codes))
    )
    forms = {"NFD": normalizers.NFD(), "NFKD": normalizers.NFKD()}
    whole = {
        one
        for one in CHARACTERS
        for name, form in forms.items()
        if form.normalize_str(one) == one != unicodedata.normalize(name, one)
    }
    strip = normalizers.StripAccents()
    found = {
        "DROPPED": [one for one, new in bert("clean_text").items() if not new and unicodedata.category(one) != "Co"],
        "CHINESE": [one for one, new in bert("handle_chinese_chars").items() if new != one],
        "MARKS": [one for one, new in bert("strip_accents").items() if not new],
        "ALL_MARKS": [one for one in CHARACTERS if not strip.normalize_str(one)],
        "PUNCTUATION": [one for one in CHARACTERS if len(step.pre_tokenize_str(f"a{one}b")) == 3],
        "WHOLE": sorted(whole),
    }
    return {name: as_text(runs_of(ones)) for name, ones in found.items()} | {"LOWER": " ".join(by_shift)}


def write(path: Path, tables: dict[str, str]) -> None:
    source = path.read_text()
    for name, text in tables.items():
        lines = "\n".join(textwrap.wrap(text, 118, break_on_hyphens=False))
        source = re.sub(rf'(?s)(_{name} = """\n).*?(\n""")', lambda found: found[1] + lines + found[2], source)  # noqa: B023
    path.write_text(source)


def main() -> None:
    write(FOLDER / "unicode_classes.py", {name: as_text(ranges_of(pattern)) for name, pattern in CLASSES.items()})
    write(FOLDER / "library_characters.py", library_tables())


if __name__ == "__main__":
    main()
