"""Files of text as other programs write them: their endings, their encodings, and what is no text."""

import gzip
import json
import os
import re

import pytest

from serving.score import rows
from tests.refusals import refused
from tests.tfrecords.conftest import build_text
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.base.text_files import JSON_LINES, kind_of
from tfrecords.corpus import documents as corpus

TEXTS = ["One. Two.", "Three."]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
LATIN = "Le café était fermé, à l'heure où nous sommes allés là.\n"


@pytest.mark.parametrize("end", [*JSON_LINES, ".JSONL", ".NDJson", ".jsonl.gz", ".JL.GZ"])
def test_one_list_of_endings_for_corpora_and_rows_to_score(tmp_path, end):
    path = tmp_path / f"rows{end}"
    path.write_bytes(gzip.compress(LINES) if end.lower().endswith(".gz") else LINES)
    assert list(corpus.read_documents(str(path))) == [[text] for text in TEXTS]
    if not end.lower().endswith(".gz"):
        pieces = rows.cut(rows.find_files(str(path)), 1000)
        found = [row.texts for piece in pieces for row in rows.read(piece, ["text"])]
        assert found == [(text.encode(),) for text in TEXTS]


@pytest.mark.parametrize(
    "name, content",
    [("a.csv", b"text\nfine\n"), ("a.TSV.gz", gzip.compress(b"text\nfine\n", mtime=0)), ("a.parquet", b"PAR1")],
)
def test_a_table_is_no_corpus(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with refused(f"{name}' is a table, its lines are no texts; make JSON lines of it"):
        list(corpus.read_documents(str(tmp_path / name)))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.xlsx", b"PK\x03\x04", "is a table"),
        ("a.txt", LINES, "holds JSON objects, and its name does not say so; give it one of the endings .jsonl, .nd"),
        ("a.data", b"\xef\xbb\xbf" + LINES * 200, "holds JSON objects"),
        ("a.txt", "plain text\n".encode("utf-16-le"), "is a binary file, or UTF-16 text without"),
        ("a.txt", '"text";"label"\n"ééé";"\x85"\n'.encode("utf-16-le"), "is a binary file, or UTF-16 text without"),
        ("a.txt", "plain text\n".encode("utf-32"), "is UTF-32 text"),
        (
            "a.txt",
            ("Съешь ещё этих мягких булок. " * 9).encode("utf-16-be"),
            "is a binary file, or UTF-16 text without",
        ),
    ],
)
@pytest.mark.parametrize("find", [corpus.read_documents, rows.find_files])
def test_what_is_no_text_is_refused_by_name(tmp_path, name, content, message, find):
    (tmp_path / name).write_bytes(content)
    with refused(f"{name}' {message}"):
        list(find(str(tmp_path / name)))


def test_lines_that_are_not_all_json_objects_are_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b'{"text": "one"}\nThat was JSON.\n')
    assert list(corpus.read_documents(f"{tmp_path}/a.txt")) == [['{"text": "one"}', "That was JSON."]]


ENCODED = {
    "latin-1": (LATIN, "cp1252"),
    "cp1252": (LATIN.replace("'", "\u2019"), "cp1252"),
    "cp850": (LATIN, "cp850"),
    "mac_roman": (LATIN, "macintosh"),
    "cp1250": ("Zażółć gęślą jaźń, że ćma łąka święto źródło są. ", "cp1250"),
    "cp1254": ("Şişli'de bir iş için çok güç, geçmiş günler değişti. ", "cp1254"),
    "cp1251": ("Съешь же ещё этих мягких булок да выпей чаю. ", "cp1251"),
    "koi8-r": ("Съешь же ещё этих мягких булок да выпей чаю. ", "koi8-r"),
    "cp1253": ("Ξεσκεπάζω την ψυχοφθόρα βδελυγμία και τον ήλιο. ", "cp1253"),
    "gb18030": ("这部电影很好看,我们都很喜欢的。他是在中国的城市里生活的人。", "gb18030"),
    "big5": ("這部電影很好看,我們都很喜歡的。他是在中國的城市裡生活的人。", "big5"),
    "cp932": ("この映画はとても面白かったです。明日はどこへ行きますか。", "cp932"),
    "euc_jp": ("この映画はとても面白かったです。明日はどこへ行きますか。", "euc-jp"),
    "cp949": ("이 영화는 정말 재미있었습니다. 우리는 내일 어디로 가나요. ", "cp949"),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_other_encodings_are_called_what_they_are_also_behind_ascii(tmp_path, encoding):
    text, name = ENCODED[encoding]
    path, licence = tmp_path / "book.txt", "All rights reserved.\n" * 300
    for before, line in (("", "' is"), (licence, "not UTF-8 text, from line 301 on")):
        path.write_bytes(before.encode() + (text * 12).encode(encoding))
        with refused(f"book.txt' is text in another encoding .iconv -f {name} -t") as error:
            list(corpus.read_documents(str(path)))
        assert line in str(error.value)
    assert kind_of((text * 12).encode()) is None


def test_damaged_bytes_are_counted(tmp_path, caplog, capsys):
    content = ("A line of text.\nAnother line.\n\n" * 300).encode() + b"A caf\xe9 on the br\xfccke.\nYes.\n"
    (tmp_path / "book.txt").write_bytes(content)
    assert list(corpus.read_documents(f"{tmp_path}/book.txt"))[-1] == ["A caf\ufffd on the br\ufffdcke.", "Yes."]
    assert "book.txt': 2 bytes are not UTF-8, each became U+FFFD" in caplog.text
    build_text(tmp_path, content, wordpiece("line", "text", "."), max_seq_length=32, held_out_fraction=0)
    assert "warning: corpus file" in capsys.readouterr().out


# Files by comma-separated globs, as every command takes them, with odd names.
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


@pytest.mark.parametrize("find", [rows.find_files, corpus.find_files])
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
