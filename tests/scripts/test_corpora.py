"""The corpora that quickstart makes: of Python's help topics, and of a text that is one document."""

from pydoc_data.topics import topics as help_topics

from scripts.cut_corpus import SENTENCES, cut, is_one_document
from tfrecords.corpus import read_documents


def test_a_document_a_topic_a_paragraph_a_line(topics):
    documents = list(read_documents(str(topics)))
    assert len(documents) == len(help_topics)
    lines = [line for document in documents for line in document]
    # Unwrapped: the width of a terminal is no limit; without the underlines of headings.
    assert max(map(len, lines)) > 200 and not any(set(line) <= set("*=-~^") for line in lines)
    words = {word for line in lines for word in line.split()}
    assert {word for text in help_topics.values() for word in text.split() if word.isalpha()} <= words


def test_one_document_is_cut_without_losing_a_sentence(tmp_path):
    sentences = [f"This is sentence number {number}." for number in range(2 * SENTENCES + 3)]
    whole = tmp_path / "whole.txt"
    whole.write_text(" ".join(sentences))
    assert is_one_document(str(whole))
    cut(str(whole), tmp_path / "cut.txt")
    parts = list(read_documents(str(tmp_path / "cut.txt")))
    assert [len(part) for part in parts] == [SENTENCES, SENTENCES, 3]
    assert [line for part in parts for line in part] == sentences
    assert not is_one_document(str(tmp_path / "cut.txt"))
