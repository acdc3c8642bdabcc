import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecords import corpus
from tfrecords.errors import UserError


def read(path, **options):
    return list(corpus.read_documents(str(path), **options))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_blank_line_parts_documents_whatever_the_line_ends(tmp_path, line_end):
    path = tmp_path / "a.txt"
    path.write_bytes(line_end.join([b"one. two.", b" three ", b"", b"", b"four", b" \t", b"five"]))
    assert read(path) == [["one. two.", "three"], ["four"], ["five"]]
    assert read(path, split_sentences=True)[0] == ["one. two.", "three"]


def test_byte_order_mark_nul_and_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\0two\n".encode() + b"bad \xff\xfe byte \xe4\xb8\n\nemoji \xf0\x9f\x98\x80")
    assert read(path) == [["one\0two", "bad \ufffd\ufffd byte \ufffd"], ["emoji 😀"]]


def test_json_lines_keep_empty_documents_and_survive_lone_surrogates(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    rows = [{"text": "a\r\nb\n\nc"}, {"text": ""}, {"text": "x\ud800y"}]
    path.write_bytes(gzip.compress(b"\n\n".join(json.dumps(row).encode() for row in rows)))
    assert read(path) == [["a", "b", "c"], [], ["x?y"]]


def test_files_of_several_globs_come_once_and_sorted(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    assert read(f"{tmp_path}/*.txt, {tmp_path}/a*") == [["a.txt"], ["b.txt"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": ', "line 2 is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n' + b"[" * 100_000, "line 2 is not JSON"),
        ("a.jsonl", b'{"body": "x"}', "no text under 'text' .it has 'body'"),
        ("a.jsonl", b"[1]", "it has a list"),
        ("a.txt.gz", gzip.compress(b"x" * 9999, mtime=0)[:-9], "is damaged"),
        ("a.txt.gz", b"no gzip", "cannot read corpus file"),
    ],
    ids=["half a line", "nested too deep", "no field", "no object", "cut off", "no gzip"],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("pattern", ["", "nowhere/*.txt", "{folder}"])
def test_patterns_without_files_are_refused(tmp_path, pattern):
    with pytest.raises(UserError, match="corpus"):
        read(pattern.format(folder=tmp_path))


line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
documents = st.lists(st.lists(line, max_size=5), max_size=12)


@settings(max_examples=60, deadline=None)
@given(documents, st.integers(64, 2000), st.booleans())
def test_documents_do_not_depend_on_the_chunks(tmp_path_factory, lines_of, chunk_bytes, json_lines):
    path = tmp_path_factory.mktemp("chunks") / ("a.jsonl" if json_lines else "a.txt")
    if json_lines:
        path.write_text("\n".join(json.dumps({"text": "\n".join(lines)}) for lines in lines_of))
    else:
        path.write_text("\n\n".join("\n".join(lines) for lines in lines_of), encoding="utf-8", newline="")
    whole = list(corpus.read_chunks([path], 1 << 30))
    parts = list(corpus.read_chunks([path], chunk_bytes * (1 if json_lines else 20)))
    assert [d for c in parts for d in corpus.parse_documents(c)] == [
        d for c in whole for d in corpus.parse_documents(c)
    ]
    count = 0
    for part in parts:
        assert part.first_document == count
        assert part.num_documents == sum(1 for _ in corpus.parse_documents(part))
        count += part.num_documents


def test_a_document_longer_than_a_chunk_is_cut_at_line_ends(tmp_path):
    path = tmp_path / "a.txt"
    lines = [f"line {number} " + "x" * 90 for number in range(400)]
    path.write_text("\n".join(lines))
    chunks = list(corpus.read_chunks([path], 4000))
    assert len(chunks) > 5
    assert max(len(chunk.data) for chunk in chunks) <= 5000
    assert [line for c in chunks for document in corpus.parse_documents(c) for line in document] == lines
    assert sum(chunk.size_on_disk for chunk in chunks) == path.stat().st_size


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_after_a_line_longer_than_a_chunk_the_cutting_goes_on(tmp_path, name):
    path = tmp_path / name
    lines = ["short", "y" * 20_000, *(f"line {number} " + "x" * 90 for number in range(400)), "z" * 30_000]
    path.write_text("\n".join(json.dumps({"text": line}) if name == "a.jsonl" else line for line in lines))
    chunks = list(corpus.read_chunks([path], 4000))
    assert sum(len(chunk.data) > 5000 for chunk in chunks) == 2
    assert [line for c in chunks for document in corpus.parse_documents(c) for line in document] == lines
    assert [chunk.first_line for chunk in chunks[:3]] == [1, 2, 3]
