# ruff: noqa: RUF001
import gzip
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tfrecords.corpus import documents as corpus
from tfrecords.corpus.sections import Section, line_number, plan_pieces, read_chunks
from tfrecords.train_tokenizer import drawn


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


def test_a_line_is_a_document(tmp_path):
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("One. Two.\n\nthree\n \nfour")
    lines.write_text(json.dumps({"text": "One. Two.\n \nthree\n\nfour"}) + "\n" + json.dumps({"text": ""}))
    for path in (plain, lines):
        (chunk,) = read_chunks(Section(str(path)))
        assert list(corpus.read_texts(chunk, "text", line_documents=True)) == [b"One. Two.", b"three", b"four"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": ', "line 2 is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n' + b"[" * 100_000, "line 2 is not JSON"),
        ("a.jsonl", b'{"body": "x"}', "no text under 'text' .*body"),
        ("a.jsonl", b'{"text": 5}', "no text under 'text' .*5"),
        ("a.jsonl", b'{"text": null}', "no text under 'text' .*null"),
        ("a.jsonl", b"[1]", "no text under 'text' .*1"),
        ("a.txt.gz", gzip.compress(b"x" * 9999, mtime=0)[:-9], "is damaged"),
        ("a.txt.gz", b"no gzip", "cannot read corpus file"),
    ],
    ids=["half a line", "nested too deep", "no field", "a number", "null", "no object", "cut off", "no gzip"],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with refused(message):
        read(tmp_path / name)


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tfrecords.corpus.sections.LONGEST_LINE", 2**16)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\n" + b"x" * 2**23))
    with refused("has a line longer than 65,536; is a line end missing"):
        chunks_of(tmp_path / "a.txt.gz", 2**16)


@pytest.mark.parametrize("pattern", ["", "nowhere/*.txt", "{folder}"])
def test_patterns_without_files_are_refused(tmp_path, pattern):
    with refused("corpus"):
        read(pattern.format(folder=tmp_path))


line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
documents = st.lists(st.lists(line, max_size=5), max_size=12)


def chunks_of(path, chunk_bytes, piece_bytes=None):
    pieces = plan_pieces([path], piece_bytes or chunk_bytes)
    return [chunk for piece in pieces for section in piece for chunk in read_chunks(section, chunk_bytes)]


def documents_of(chunks):
    texts = [text for chunk in chunks for text in corpus.read_texts(chunk, "text")]
    return [corpus.sentences_of(text.decode(), False) for text in texts]


@given(documents, st.integers(64, 2000), st.booleans(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_documents_do_not_depend_on_the_cuts(tmp_path_factory, lines_of, chunk_bytes, json_lines, line_end):
    path = tmp_path_factory.mktemp("chunks") / ("a.jsonl" if json_lines else "a.txt")
    if json_lines:
        text = "\n".join(json.dumps({"text": "\n".join(lines)}) for lines in lines_of)
    else:
        text = "\n\n".join("\n".join(lines) for lines in lines_of)
    path.write_bytes(text.replace("\n", line_end).encode())
    whole = list(corpus.read_documents(str(path)))
    # No document is longer than a chunk, or it would be cut.
    least = chunk_bytes if json_lines else max(chunk_bytes, 2 * max(map(len, text.encode().split(b"\n\n"))) + 64)
    assert documents_of(chunks_of(path, least)) == whole
    assert documents_of(chunks_of(path, least, 3 * least)) == whole


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
@pytest.mark.parametrize("long", [False, True], ids=["a document", "lines too"])
def test_a_document_longer_than_a_chunk_is_cut_at_line_ends(tmp_path, name, long):
    path, is_json = tmp_path / name, name == "a.jsonl"
    lines = [f"line {number} " + "x" * 90 for number in range(400)]
    if long:
        # After a line longer than a chunk the cutting goes on.
        lines = ["short", "y" * 20_000, *lines, "z" * 30_000]
    path.write_text("\n".join(json.dumps({"text": line}) if is_json else line for line in lines))
    for piece_bytes in (4000, 12_000, 1 << 20):
        chunks = chunks_of(path, 4000, piece_bytes)
        assert len(chunks) > 5
        assert sum(len(chunk.data) > 5200 for chunk in chunks) == 2 * long
        assert [line for document in documents_of(chunks) for line in document] == lines
        if long:
            assert [line_number(chunk, 0) for chunk in chunks[:3]] == [1, 2, 3]


def test_a_corpus_on_object_storage(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/corpus/a.jsonl", b'{"text": "one\\ntwo"}\n' * 50)
    memory.pipe("/bucket/corpus/b.txt.gz", gzip.compress(b"three\n\nfour"))
    try:
        found = corpus.find_files("memory://bucket/corpus/*")
        assert found == ["memory:///bucket/corpus/a.jsonl", "memory:///bucket/corpus/b.txt.gz"]
        assert list(corpus.read_documents("memory://bucket/corpus/*")) == [["one", "two"]] * 50 + [["three"], ["four"]]
        assert len(chunks_of(found[0], 200)) > 3
        assert documents_of(chunks_of(found[0], 200)) == [["one", "two"]] * 50
        with refused("matches no file"):
            corpus.find_files("memory://bucket/nothing/*")
    finally:
        memory.rm("/bucket", recursive=True)


def test_object_storage_without_its_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refused(r"pip install '\.\[remote\]'"):
        corpus.find_files("s3://bucket/*.txt")


PLAIN = "he said a < b and c > d, see <nick> and {{x}}\n== no heading\n" * 200


@pytest.mark.parametrize(
    "text, names",
    [
        ('<doc id="1">\nthe cat\n</doc>\n\n', "<doc>"),
        ("<html><body>\n<p>the cat</p>\n</body></html>\n", "<p>"),
        ("{{Infobox|a=b\nthe cat sat\n[[File:a.jpg]]\n== History ==\n", "{{, [[, =="),
        (PLAIN, ""),
        ("the cat\n" * 99 + "<b>the cat</b>\n", ""),
    ],
)
def test_markup_is_named_and_text_with_signs_is_none(tmp_path, capsys, text, names):
    (tmp_path / "text.txt").write_text(text * 20)
    corpus.warn_of_markup([tmp_path / "text.txt"])
    said = capsys.readouterr().err
    assert ("of the lines are markup" in said) == bool(names) and names in said


def test_lines_are_drawn_from_everywhere_each_as_likely():
    taken = np.array(list(drawn(range(100_000), 100_000, 20_000)))
    assert len(taken) == 20_000 and (np.diff(taken) > 0).all()
    # Of each thousand 200, with a standard deviation of 12.6.
    counts = np.bincount(taken // 1000, minlength=100)
    assert abs(counts - 200).max() < 5 * 12.6 and 8 < counts.std() < 18
    assert list(drawn("abc", 3, 9)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. J. Doe at 3 p.m. in Washington, D.C. He left.", '"Why?" she asked.', "No!", "Really?!"],
        ["See e.g. Fig. 3.", "Version 2.21 costs $9.99 a day.", "Done (really.)", "(It was.)", "Next"],
        ["It rained... nobody came.", "Éva did.", "1999 was cold."],
    ],
)
def test_english(sentences):
    assert corpus.split_paragraph(" ".join(sentences)) == sentences


def test_chinese_needs_no_space_and_keeps_closing_quotes():
    sentences = ["他说：“你好。”", "然后走了。", "真的吗？！", "是的……", "没有句号"]
    assert corpus.split_paragraph("".join(sentences)) == sentences


@given(st.text(st.sampled_from("aB. !?。！…\"'”)( 1一\t"), max_size=60))
def test_no_character_is_lost_and_no_sentence_is_empty(paragraph):
    sentences = corpus.split_paragraph(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence.strip() == sentence != "" for sentence in sentences)


@pytest.mark.parametrize("unit", [".", "。", ". ", '."', "… "])
def test_runs_of_marks_take_linear_time(unit):
    # Quadratic time would be minutes for this many, and the suite's time limit would end it.
    assert corpus.split_paragraph(unit * 500_000)
