"""A corpus that every CPython carries, a tokenizer trained on it, and records built from it."""

import pydoc_data.topics

import pytest
import tensorflow as tf

from tfrecords.base.parts import Parts
from tfrecords.building import builder
from tfrecords.building.settings import BuildSettings
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer

SMALL = {"seed": 1, "max_seq_length": 64, "max_predictions_per_seq": 10, "split_sentences": True}
SMALL_CHUNKS = BuildSettings(**SMALL, chunk_megabytes=0.03)


@pytest.fixture(scope="session")
def corpus_file(made_once):
    """Plain text: 79 documents of paragraphs, a line each."""
    documents = (
        "\n".join(" ".join(paragraph.split()) for paragraph in topic.split("\n\n"))
        for topic in pydoc_data.topics.topics.values()
    )
    text = "\n\n".join(documents)
    folder = made_once("records_corpus", lambda folder: (folder / "topics.txt").write_text(text, encoding="utf-8"))
    return folder / "topics.txt"


@pytest.fixture(scope="session")
def corpus_lines(corpus_file):
    return corpus_file.read_text(encoding="utf-8").split("\n")


@pytest.fixture(scope="session")
def tokenizer(corpus_lines, made_once):
    lines = [line for line in corpus_lines if line.strip()]
    folder = made_once(
        "records_tokenizer", lambda folder: (folder / "spm.model").write_bytes(train_tokenizer(lines, vocab_size=1200))
    )
    return load_tokenizer(folder / "spm.model")


@pytest.fixture(scope="session")
def bpe_of_corpus(corpus_lines):
    """The tokenizer.json of a byte-level BPE of the corpus, and of some text that has other letters."""
    pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    return train_bpe([*corpus_lines, "中文 標點，中文 é é 👍👍 👍"], 1500)  # noqa: RUF001


@pytest.fixture(scope="session")
def build(build_corpus, made_once):
    """A function of settings that builds the corpus's records once for each and returns their folder."""

    def build_once(**settings):
        name = "-".join(["records", *(f"{key}={value}" for key, value in sorted(settings.items()))])
        return made_once(name, lambda folder: build_corpus(folder, BuildSettings(**SMALL | settings)))

    return build_once


@pytest.fixture(scope="session")
def one_worker(build):
    """The folder that one worker builds by SMALL_CHUNKS; tests copy it before they change it."""
    return build(chunk_megabytes=0.03)


@pytest.fixture(scope="session")
def build_corpus(corpus_file, tokenizer):
    """Builds the records of the corpus in a folder."""

    def build(folder, config=SMALL_CHUNKS, workers=1, overwrite=False, **options):
        return builder.build(str(corpus_file), folder, tokenizer, config, workers, overwrite, **options)

    return build


@pytest.fixture
def cut_off(build_corpus, monkeypatch):
    """Begins to build, and fails where a method (of Parts: the files get their names) is called."""

    def cut(folder, owner=Parts, method="publish", build=build_corpus):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(owner, method, lambda *_: 1 / 0)
            build(folder)

    return cut


def build_text(folder, text, tokenizer, name="data", workers=1, **settings):
    """Builds records of a text, or of files by their names, and returns the manifest; the folder has this name."""
    source = folder / "corpus"
    source.mkdir(parents=True, exist_ok=True)
    for file, content in (text if isinstance(text, dict) else {"a.txt": text}).items():
        (source / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    config = BuildSettings(**{"seed": 1, "max_seq_length": 64} | settings)
    return builder.build(f"{source}/*", folder / name, tokenizer, config, workers, False)


def contents(folder):
    """The files of a folder by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def features_of(path, compression=""):
    """The features of each record of a file, parsed by protobuf alone: lists of numbers by name."""
    return [
        {name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in example.features.feature.items()}
        for example in (
            tf.train.Example.FromString(record)
            for record in tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator()
        )
    ]
