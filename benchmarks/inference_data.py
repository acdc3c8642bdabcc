"""What the inference benchmark runs on: fixed shapes, and real sentences in the lengths they have."""

import csv
import gzip
import json
import random
from pathlib import Path

import numpy as np

from tfrecords.tokenizers.loading import load_tokenizer

LONGEST = 384


def shape(batch: int, length: int, vocab_size: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(5, vocab_size, (batch, length)).tolist()


def sentences(data: Path, count: int, seed: int = 0) -> dict[str, list[list[int]]]:
    """`count` framed rows of token ids from each of SST-2, MRPC and SQuAD (question and context, up to 384)."""
    tokenizer = load_tokenizer(data / "spm" / "30k-clean.model")
    texts = {
        "SST-2": [tuple(row[:1]) for row in _tsv(data / "glue" / "SST-2" / "dev.tsv")],
        "MRPC": [tuple(row[3:5]) for row in _tsv(data / "glue" / "MRPC" / "dev.tsv")],
        "SQuAD": _squad(data),
    }
    rows = {}
    for name, parts in texts.items():
        chosen = random.Random(seed).sample(parts, count)
        rows[name] = []
        for row in chosen:
            framed = [tokenizer.cls_id]
            for text in row:
                framed += [*tokenizer.encode(text), tokenizer.sep_id]
            rows[name].append(framed[: LONGEST - 1] + framed[-1:] if len(framed) > LONGEST else framed)
    return rows


def pad(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """input_ids int32 and mask int64 [rows, longest], lengths int32 [rows]."""
    lengths = np.array([len(row) for row in rows], np.int32)
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask.astype(np.int64), lengths


def sst2_dev(data: Path, tokenizer) -> tuple[list[list[int]], np.ndarray]:
    """All rows of SST-2's dev set as token ids, and their labels."""
    found = _tsv(data / "glue" / "SST-2" / "dev.tsv")
    rows = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text, _ in found]
    return rows, np.array([int(label) for _, label in found])


def _tsv(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def _squad(data: Path) -> list[tuple[str, ...]]:
    with gzip.open(data / "squad" / "dev-v1.1.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(question["question"], part["context"]) for part in paragraphs for question in part["qas"]]
