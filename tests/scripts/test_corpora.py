"""The corpora that quickstart makes: of Python's help topics, and of a text that is one document."""

import re
from pydoc_data.topics import topics as help_topics

import pytest

from scripts.choose_corpus import corpus_pattern, fingerprint
from scripts.cut_corpus import SENTENCES, cut, has_few_documents
from tfrecords.base.errors import UserError
from tfrecords.corpus import find_files, read_documents


def test_a_document_a_topic_a_paragraph_a_line(topics):
    documents = list(read_documents(str(topics)))
    assert len(documents) == len(help_topics)
    lines = [line for document in documents for line in document]
    # Unwrapped: the width of a terminal is no limit; without the underlines of headings.
    assert max(map(len, lines)) > 200 and not any(set(line) <= set("*=-~^") for line in lines)
    words = {word for line in lines for word in line.split()}
    assert {word for text in help_topics.values() for word in text.split() if word.isalpha()} <= words


def test_one_document_is_cut_without_losing_a_sentence(tmp_path, topics):
    sentences = [f"This is sentence number {number}." for number in range(2 * SENTENCES + 3)]
    whole = tmp_path / "whole.txt"
    whole.write_text(" ".join(sentences))
    assert has_few_documents(str(whole))
    cut(str(whole), tmp_path / "cut.txt")
    parts = list(read_documents(str(tmp_path / "cut.txt")))
    assert [len(part) for part in parts] == [SENTENCES, SENTENCES, 3]
    assert [line for part in parts for line in part] == sentences
    assert not has_few_documents(str(topics))


@pytest.mark.parametrize(
    ("name", "corpus"),
    [
        ("my text.txt", "my text.txt"),
        ("a/b.txt", "a"),
        ("a/b.jsonl.gz", "a"),
        ("a [1]/b.txt", "a [1]"),
        ("a [1].txt", "a [1].txt"),
        ("a/deep/b.txt", "**/*.txt"),
        ("a/b.txt", "~/a/b.txt"),
    ],
)
def test_whatever_names_a_corpus(tmp_path, monkeypatch, name, corpus):
    """Relative to the folder of the caller; a change of the file changes the fingerprint."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("text")
    pattern = corpus_pattern(corpus, tmp_path)
    assert find_files(pattern) == [tmp_path / name]
    before = fingerprint(pattern)
    (tmp_path / name).write_text("other text")
    assert fingerprint(pattern) != before


@pytest.mark.parametrize("corpus", ["absent.txt", "empty", "*.md", "a,b.txt"])
def test_what_is_no_corpus_is_named(tmp_path, corpus):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=re.escape(f"--corpus={corpus} ")):
        corpus_pattern(corpus, tmp_path)
