"""Files by comma-separated globs, as every command takes them, with odd names."""

import os
import re

import pytest

from serving.score.rows import find_files as rows
from tests.refusals import refused
from tfrecords.corpus import find_files as corpus

NAMES = ("a[1].txt", "b,c.txt", "x[2]/f.txt", "x2/f.txt", "plain.txt")
FOUND = {
    "a[1].txt": ["a[1].txt"],
    "b,c.txt": ["b,c.txt"],
    "plain.txt, a[1].txt, p*": ["a[1].txt", "plain.txt"],
    "x[2]/*.txt": ["x[2]/f.txt"],
    "x[2-3]/*.txt,": ["x2/f.txt"],
    "[ap]*.txt": ["a[1].txt", "plain.txt"],
    "**/f.txt": ["x2/f.txt", "x[2]/f.txt"],
}


@pytest.mark.parametrize("find", [rows, corpus])
def test_a_file_that_is_there_is_found_by_its_name(tmp_path, monkeypatch, find):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a")
    for patterns, expected in FOUND.items():
        assert [str(path) for path in find(patterns)] == expected, patterns
    with open(os.fsencode(tmp_path) + b"/n\xff.txt", "w") as file:
        file.write("a")
    for patterns in ("n*.txt", os.fsdecode(b"n\xff.txt")):
        with refused(re.escape(r"name of the file 'n\udcff.txt' is not UTF-8; rename it")):
            find(patterns)
