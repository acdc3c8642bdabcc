"""A corpus that every CPython carries, a tokenizer trained on it, and records built from it."""

import pydoc_data.topics
from pathlib import Path

import pytest

from tfrecords import builder, corpus
from tfrecords.build_settings import BuildSettings
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.training import train_tokenizer

SMALL_CHUNKS = BuildSettings(
    seed=1, max_seq_length=64, max_predictions_per_seq=10, split_sentences=True, chunk_megabytes=0.03
)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> Path:
    """Plain text: 79 documents of paragraphs, a line each."""
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    documents = (
        "\n".join(" ".join(paragraph.split()) for paragraph in topic.split("\n\n"))
        for topic in pydoc_data.topics.topics.values()
    )
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(corpus_file, tmp_path_factory) -> Tokenizer:
    lines = (line for document in corpus.read_documents(str(corpus_file)) for line in document)
    path = tmp_path_factory.mktemp("tokenizer") / "spm.model"
    path.write_bytes(train_tokenizer(lines, vocab_size=1200))
    return load_tokenizer(path)


@pytest.fixture(scope="session")
def build(corpus_file, tokenizer, tmp_path_factory):
    """A function of settings that builds the corpus's records once for each and returns their folder."""
    folders = {}

    def build_once(**settings) -> Path:
        key = tuple(sorted(settings.items()))
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("records")
            builder.build(str(corpus_file), folders[key], tokenizer, config(**settings), workers=1, overwrite=False)
        return folders[key]

    return build_once


def config(**settings) -> BuildSettings:
    """Small examples of split sentences, with these settings."""
    small = {"seed": 1, "max_seq_length": 64, "max_predictions_per_seq": 10, "split_sentences": True}
    return BuildSettings(**small | settings)


@pytest.fixture(scope="session")
def one_worker(corpus_file, tokenizer, tmp_path_factory) -> Path:
    """The folder that one worker builds by SMALL_CHUNKS; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("one")
    builder.build(str(corpus_file), folder, tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
