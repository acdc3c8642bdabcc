"""What a folder of records was made from: inputs.tsv, a line a file, so that a file is known by its content."""

import collections
import hashlib
import itertools
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path
from typing import Any

from tfrecords import sections
from tfrecords.base import files
from tfrecords.sections import Section

INPUTS = "inputs.tsv"
BAD_LINES = "bad_lines.txt"
_HEADER = "sha256 of the sections' sha256\tbytes\tname\n"


def stamps(paths: Iterable[str | Path]) -> str:
    """Another after most changes of a file, without a look inside."""
    states = [f"{path} {sections.size_of(path)} {sections.changed_at(path)}" for path in paths]
    return hashlib.sha256("\n".join(states).encode()).hexdigest()


def write_inputs(folder: Path, pieces: list[list[Section]], digests: list[list[str]]) -> None:
    """digests: those of each piece's sections."""
    of_file = collections.defaultdict(list)
    for piece, of_piece in zip(pieces, digests):
        for section, digest in zip(piece, of_piece):
            of_file[section.path].append(digest)
    rows = (f"{_joined(parts)}\t{sections.size_of(path)}\t{Path(path).name}\n" for path, parts in of_file.items())
    with files.replacing(folder / INPUTS) as temporary:
        temporary.write_text(_HEADER + "".join(rows), encoding="utf-8")


def write_bad_lines(folder: Path, bad_lines: list[str]) -> None:
    path = folder / BAD_LINES
    path.unlink(missing_ok=True)
    if bad_lines:
        with files.replacing(path) as temporary:
            temporary.write_text("\n".join(bad_lines) + "\n", encoding="utf-8")
        print(f"left out {len(bad_lines)} bad lines; '{path}' lists them")


def summary(folder: Path, piece_bytes: int) -> dict[str, Any]:
    """What the manifest says of the inputs."""
    rows = _rows(folder)
    total = sum(size for size, _, _ in rows)
    return {"files": len(rows), "bytes": total, "section_bytes": piece_bytes, "list": files.sha256(folder / INPUTS)}


def are_the_same(folder: Path, described: Any, paths: list[str | Path]) -> bool:
    """Whether files of this content, wherever they lie and in whatever order, are what the folder was made from.

    Those that the folder's list names, and that nobody touched since, are not read.
    """
    if not isinstance(described, dict) or not (folder / INPUTS).exists():
        return False
    if files.sha256(folder / INPUTS) != described["list"]:
        return False
    rows = _rows(folder)
    if sorted(size for size, _, _ in rows) != sorted(map(sections.size_of, paths)):
        return False
    since = (folder / INPUTS).stat().st_mtime
    known = collections.defaultdict(list)
    for size, name, digest in rows:
        known[size, name].append(digest)

    def digest_of(path: str | Path) -> str:
        of_name = known.get((sections.size_of(path), Path(path).name), [])
        if len(of_name) == 1 and sections.changed_at(path) < since:
            return of_name[0]
        of_file = itertools.chain.from_iterable(sections.plan_pieces([path], described["section_bytes"]))
        return _joined(map(sections.digest, of_file))

    with futures.ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(digest_of, paths)) == sorted(digest for _, _, digest in rows)


def _joined(digests: Iterable[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _rows(folder: Path) -> list[tuple[int, str, str]]:
    """(bytes, name, digest) of each file."""
    lines = (folder / INPUTS).read_text(encoding="utf-8").split("\n")[1:-1]
    rows = (line.split("\t", 2) for line in lines)
    return [(int(size), name, digest) for digest, size, name in rows]
