"""Chunks of a corpus to a folder of TFRecord files with a manifest: in parallel, resumable, the same bytes every time.

Each chunk of the corpus becomes one file of each split. While the work runs, the files lie in `.parts` with a small
JSON file a chunk that says it is done; at the end they get their final names, and then the manifest is written: a
folder with a manifest is complete.
"""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfrecords import corpus, files
from tfrecords.errors import UserError
from tfrecords.examples import ExampleConfig, Examples, build_examples, encode_examples
from tfrecords.manifest import SPLITS
from tfrecords.masking import MaskingVocabulary
from tfrecords.randomness import derive
from tfrecords.tokenizer import Tokenizer

# Purposes of keys that belong to no single copy of a document.
_HELD_OUT, _SHUFFLE = -1, -2
# Examples encoded at once: few enough that their arrays stay in the processor's cache.
_BLOCK = 256


@dataclass(frozen=True)
class BuildConfig:
    """What decides the bytes of a folder of records, apart from the corpus and the tokenizer."""

    examples: ExampleConfig
    held_out_fraction: float = 0.1
    text_field: str = "text"
    split_sentences: bool = False
    gzip: bool = False
    chunk_megabytes: float = 16.0

    def __post_init__(self):
        if not 0 <= self.held_out_fraction < 1:
            raise UserError(f"held_out_fraction is {self.held_out_fraction}; it must be at least 0 and below 1")
        if not 0.01 <= self.chunk_megabytes <= 1024:
            raise UserError(f"chunk_megabytes is {self.chunk_megabytes}; it must lie between 0.01 and 1024")

    @property
    def chunk_bytes(self) -> int:
        return int(self.chunk_megabytes * 1e6)


def held_out(documents: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """bool [documents]: which of these places in the corpus are kept for evaluation.

    One random document of every 1/fraction consecutive ones, so the share is exact; the first is one of the first two,
    so that a corpus of two documents has one.
    """
    if fraction == 0:
        return np.zeros(len(documents), bool)
    stratum = np.floor(documents * fraction).astype(np.int64)
    first = np.ceil(stratum / fraction).astype(np.int64)
    size = np.ceil((stratum + 1) / fraction).astype(np.int64) - first
    size = np.where(stratum == 0, np.minimum(size, 2), size)
    choice = derive(seed, _HELD_OUT, stratum) % size.astype(np.uint64)
    return documents - first == choice.astype(np.int64)


class ChunkBuilder:
    """Makes the parts of one chunk. One lives in each worker process."""

    def __init__(self, config: BuildConfig, tokenizer: Tokenizer, parts: Path):
        self.config, self.tokenizer, self.parts = config, tokenizer, parts
        self.vocabulary = MaskingVocabulary.of(tokenizer)

    def build(self, number: int, chunk: corpus.Chunk) -> dict[str, Any]:
        """Writes the chunk's parts and returns what goes into its JSON file."""
        report = {"text_bytes": 0, "splits": {split: None for split in SPLITS}}
        documents = corpus.parse_documents(chunk, self.config.text_field, self.config.split_sentences)
        numbers = np.arange(chunk.first_document, chunk.first_document + len(documents))
        kept_out = held_out(numbers, self.config.held_out_fraction, self.config.examples.seed)
        for split, chosen in zip(SPLITS, (~kept_out, kept_out)):
            of_split = [document for document, is_chosen in zip(documents, chosen) if is_chosen]
            report["splits"][split] = self._build_split(number, split, of_split, numbers[chosen])
        report["text_bytes"] = len(chunk.data)
        files.write_json(part_path(self.parts, number, "done.json"), report)
        return report

    def _build_split(self, number: int, split: str, documents: list[list[str]], numbers: np.ndarray) -> dict[str, Any]:
        examples = tokens = 0
        with files.replacing(part_path(self.parts, number, split)) as temporary, open(temporary, "wb") as file:
            writer = _HashingWriter(file, self.config.gzip)
            for batch in self._batches(documents, numbers):
                writer.write(encode_examples(self.config.examples, self.vocabulary, batch))
                examples += len(batch.lengths)
                tokens += int(batch.lengths.sum())
            writer.finish()
        counts = {"documents": len(documents), "examples": examples, "tokens": tokens}
        return counts | {"bytes": writer.bytes, "sha256": writer.sha256}

    def _batches(self, documents: list[list[str]], numbers: np.ndarray) -> Iterator[Examples]:
        """The examples of all passes over these documents, shuffled within each pass."""
        if not documents:
            return
        config = self.config.examples
        ids, sentence_splits = self.tokenizer.encode_batch([s for document in documents for s in document])
        document_splits = np.cumsum([0] + [len(document) for document in documents])
        for copy in range(config.dupe_factor):
            examples = build_examples(config, self.vocabulary, ids, sentence_splits, document_splits, numbers, copy)
            order = np.argsort(derive(config.seed, _SHUFFLE, copy, numbers[0], np.arange(len(examples.lengths))))
            for start in range(0, len(order), _BLOCK):
                yield examples.take(order[start : start + _BLOCK])


class _HashingWriter:
    """Writes bytes, gzipped if asked, and keeps count and SHA-256 of what goes into the file."""

    def __init__(self, file: BinaryIO, gzip: bool):
        self._file, self._hash, self.bytes = file, hashlib.sha256(), 0
        self._compressor = zlib.compressobj(6, wbits=31) if gzip else None

    def write(self, data: bytes) -> None:
        self._put(self._compressor.compress(data) if self._compressor else data)

    def finish(self) -> None:
        self._put(self._compressor.flush() if self._compressor else b"")

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def part_path(parts: Path, number: int, suffix: str) -> Path:
    return parts / f"{number:06d}.{suffix}"
