"""Chunks of a corpus to a folder of TFRecord files with a manifest: in parallel, resumable, the same bytes every time.

Each chunk of the corpus becomes one file of each split. While the work runs, the files lie in `.parts` with a small
JSON file a chunk that says it is done; at the end they get their final names, and then the manifest is written: a
folder with a manifest is complete.
"""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfrecords import corpus, files
from tfrecords.errors import UserError
from tfrecords.examples import ExampleConfig, encode_examples, lay_out, plan_examples
from tfrecords.manifest import SPLITS
from tfrecords.masking import MaskingVocabulary
from tfrecords.randomness import derive
from tfrecords.tokenizer import Tokenizer

# Purposes of keys that belong to no single copy of a document.
_HELD_OUT, _SHUFFLE = -1, -2
# Examples encoded at once: few enough that their arrays stay in the processor's cache.
_BLOCK = 256
# Text tokenized at once.
_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class BuildConfig:
    """What decides the bytes of a folder of records, apart from the corpus and the tokenizer."""

    examples: ExampleConfig
    held_out_fraction: float = 0.1
    text_field: str = "text"
    split_sentences: bool = False
    gzip: bool = False
    chunk_megabytes: float = 8.0

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
        tokens = self._tokenize(chunk)
        splits = {split: self._build_split(number, split, tokens[split]) for split in SPLITS}
        report = {"text_bytes": len(chunk.data), "splits": splits}
        files.write_json(part_path(self.parts, number, "done.json"), report)
        return report

    def _tokenize(self, chunk: corpus.Chunk) -> dict[str, "_Documents"]:
        """The chunk's documents by split. They are tokenized some at a time: their text is larger than their ids."""
        numbers = np.arange(chunk.first_document, chunk.first_document + chunk.num_documents)
        kept_out = held_out(numbers, self.config.held_out_fraction, self.config.examples.seed)
        collected = {split: _Documents() for split in SPLITS}
        documents = corpus.parse_documents(chunk, self.config.text_field, self.config.split_sentences)
        for number, out, document in zip(numbers, kept_out, documents):
            collected[SPLITS[int(out)]].add(int(number), document, self.tokenizer)
        for of_split in collected.values():
            of_split.flush(self.tokenizer)
        return collected

    def _build_split(self, number: int, split: str, documents: "_Documents") -> dict[str, Any]:
        config, examples, tokens = self.config.examples, 0, 0
        with files.replacing(part_path(self.parts, number, split)) as temporary, open(temporary, "wb") as file:
            writer = _HashingWriter(file, self.config.gzip)
            for copy in range(config.dupe_factor if documents.numbers else 0):
                plan = plan_examples(config, self.vocabulary.sep_id, *documents.arrays(), copy)
                order = np.argsort(derive(config.seed, _SHUFFLE, copy, documents.numbers[0], np.arange(len(plan))))
                for start in range(0, len(order), _BLOCK):
                    block = lay_out(config, self.vocabulary, plan, order[start : start + _BLOCK])
                    writer.write(encode_examples(config, self.vocabulary, block))
                    tokens += int(block.lengths.sum())
                examples += len(plan)
            writer.finish()
        counts = {"documents": len(documents.numbers), "examples": examples, "tokens": tokens}
        return counts | {"bytes": writer.bytes, "sha256": writer.sha256}


class _Documents:
    """Documents on their way from text to arrays."""

    def __init__(self):
        self.numbers: list[int] = []
        self._sizes: list[int] = []
        self._ids: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._waiting: list[str] = []
        self._characters = 0

    def add(self, number: int, sentences: list[str], tokenizer: Tokenizer) -> None:
        self.numbers.append(number)
        self._sizes.append(len(sentences))
        self._waiting += sentences
        self._characters += sum(map(len, sentences))
        if self._characters > _CHARACTERS:
            self.flush(tokenizer)

    def flush(self, tokenizer: Tokenizer) -> None:
        ids, splits = tokenizer.encode_batch(self._waiting)
        self._ids.append(ids)
        self._lengths.append(np.diff(splits))
        self._waiting, self._characters = [], 0

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ids, sentence_splits, document_splits (see `segments`) and the documents' numbers."""
        self._ids, self._lengths = [np.concatenate(self._ids)], [np.concatenate(self._lengths)]
        sentence_splits = np.concatenate([[0], np.cumsum(self._lengths[0])]).astype(np.int64)
        return self._ids[0], sentence_splits, np.cumsum([0, *self._sizes]), np.array(self.numbers)


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
