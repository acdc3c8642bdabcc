"""Tasks of a build's worker processes: they assign documents to shards and write shard files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfrecords.base import files
from tfrecords.base.parts import Parts
from tfrecords.building.deal import (
    Deal,
    Documents,
    batches,
    hash_texts,
    occurrences,
    read_shard,
    split_hashes,
    write_spill,
)
from tfrecords.building.settings import BuildSettings
from tfrecords.corpus import sections
from tfrecords.corpus.documents import read_texts, sentences_of
from tfrecords.examples.masking import MaskingVocabulary
from tfrecords.examples.permutation import document_end_id, encode_streams
from tfrecords.examples.randomness import derive
from tfrecords.examples.records import encode_examples, lay_out, plan_examples
from tfrecords.tokenizers.base import Tokenizer

# Purposes of keys that belong to no single pass over a document; `deal` has more.
_SHUFFLE, _ORDER = -2, -4
# Examples encoded at once: few enough that their arrays stay in the processor's cache.
_BLOCK = 256
# Text tokenized at once.
_TOKENIZED_BYTES = 1 << 20

# Ids, and where sentences begin in them; where documents begin among the sentences; a key of each document.
_Tokenized = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Worker:
    """Runs tasks in a worker process; each method is a kind of task."""

    settings: BuildSettings
    tokenizer: Tokenizer
    parts: Parts
    deal: Deal
    piece_bytes: int

    def __post_init__(self):
        self.vocabulary, self.end_id = MaskingVocabulary.of(self.tokenizer), document_end_id(self.tokenizer)

    def read_piece(self, part: str, piece: list[sections.Section], boot: str) -> dict[str, Any]:
        """Writes the documents of a piece of the corpus to spill files, and returns a report.

        `boot` is stored in the report.
        """
        not_utf8: dict[str, int] = {}
        made: list[Path] = []
        for batch in batches(self._texts(piece, not_utf8), self.piece_bytes):
            hashes = hash_texts(batch)
            shards = self.deal.shard_of(hashes, split_hashes(batch))
            made.append(self.parts.file(f"{part}-{len(made):04d}.spill"))
            write_spill(made[-1], Documents(hashes, batch), shards, self.deal.shards)
        report = {"boot": boot, "not_utf8": not_utf8}
        return self.parts.finish(part, report, made, durable=False)

    def _texts(self, piece: list[sections.Section], not_utf8: dict[str, int]) -> Iterator[bytes]:
        for section in piece:
            for chunk in sections.read_chunks(section, self.settings.chunk_bytes):
                if chunk.not_utf8:
                    not_utf8[chunk.path] = not_utf8.get(chunk.path, 0) + chunk.not_utf8
                for text in read_texts(chunk, self.settings.text_field, self.settings.line_documents):
                    yield "\n".join(sentences_of(text.decode(), self.settings.split_sentences)).encode()

    def build(self, part: str, shard: int, spills: list[Path]) -> dict[str, Any]:
        """Writes the records of a shard, and returns a report."""
        documents = read_shard(spills, shard)
        text_bytes = sum(map(len, documents.texts))
        path = self.parts.file(f"{part}.tfrecord")
        return self.parts.finish(
            part, {"text_bytes": text_bytes, **self._write(path, self._tokenize(documents))}, [path]
        )

    def _tokenize(self, documents: Documents) -> _Tokenized:
        order = np.lexsort([documents.hashes, derive(self.settings.seed, _ORDER, documents.hashes)])
        hashes = documents.hashes[order]
        ids, lengths, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], [0]
        # A few documents at a time: text is larger than ids.
        for batch in batches((documents.texts[i] for i in order), _TOKENIZED_BYTES):
            of_documents = [text.decode().split("\n") if text else [] for text in batch]
            sizes += map(len, of_documents)
            found, splits = self.tokenizer.encode_batch([sentence for one in of_documents for sentence in one])
            ids.append(found)
            lengths.append(np.diff(splits))
        sentence_splits = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
        numbers = derive(hashes, occurrences(hashes)).astype(np.int64)
        return np.concatenate(ids), sentence_splits, np.cumsum(sizes), numbers

    def _write(self, path: Path, documents: _Tokenized) -> dict[str, Any]:
        counts = {"documents": len(documents[-1]), "examples": 0, "tokens": 0, "label_1": 0}
        with files.replacing(path) as temporary:
            with open(temporary, "wb") as file:
                for records, block in self._encode(documents):
                    file.write(records)
                    counts["examples"] += len(block.lengths)
                    counts["tokens"] += int(block.lengths.sum())
                    counts["label_1"] += int(block.labels.sum())
            # Just written, the file is still in memory.
            return counts | {"bytes": temporary.stat().st_size, "sha256": files.sha256(temporary)}

    def _encode(self, documents: _Tokenized) -> Iterator[tuple[bytes, Any]]:
        settings = self.settings
        for copy in range(settings.dupe_factor if len(documents[-1]) else 0):
            if settings.objective == "permutation":
                yield from encode_streams(settings, self.vocabulary, self.end_id, *documents, copy)
                continue
            plan = plan_examples(settings, self.vocabulary, *documents, copy)
            order = np.argsort(derive(settings.seed, _SHUFFLE, copy, documents[-1][0], np.arange(len(plan.keys))))
            for start in range(0, len(order), _BLOCK):
                block = lay_out(settings, self.vocabulary, plan, order[start : start + _BLOCK])
                yield encode_examples(settings, self.vocabulary, block), block
