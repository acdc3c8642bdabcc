"""Ids, offsets and texts of every kind of tokenizer, by Python and by the graph."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .commands import preload
from .groups import Case, Folders
from .places import take
from .records import tokenizer_file, vocabulary
from .texts import MULTILINGUAL, noise, sentences

KINDS = {
    "wordpiece": {},
    "wordpiece cased": {"lower_case": False},
    "wordpiece with accents": {"keep_accents": True},
    "sentencepiece": {},
    "bpe": {},
}
TEXTS = [*MULTILINGUAL, *sentences(20), *noise(60)]


def cases(folders: Folders) -> Iterator[Case]:
    """Returns the cases of tokenizers."""
    yield "libraries", preload
    for kind in ("sentencepiece", "bpe"):
        yield f"a vocabulary, {kind}", vocabulary, kind, folders.write, folders
    for kind in KINDS:
        yield f"Python, {kind}", by_python, kind, folders
    for kind in KINDS:
        yield f"graph, {kind}", by_graph, kind, folders
        yield f"features, {kind}", features, kind, folders


def load(kind: str, folder: Path) -> Any:
    """Returns a tokenizer of the version before's files."""
    return take("load_tokenizer")(tokenizer_file(kind.split()[0], folder), **KINDS[kind])


def by_python(kind: str, folders: Folders) -> dict[str, Any]:
    """Ids, where each comes from, texts back, and what the tokenizer knows of its pieces."""
    tokenizer = load(kind, folders.read)
    ids, splits = tokenizer.encode_batch(TEXTS)
    found: dict[str, Any] = {"ids": ids, "splits": splits}
    for name, value in zip(("ids", "splits", "offsets"), tokenizer.encode_with_offsets(TEXTS)):
        found[f"with offsets/{name}"] = value
    rows = [ids[begin:end].tolist() for begin, end in itertools.pairwise(splits)]
    found["decoded"] = "\n".join(repr(tokenizer.decode(row)) for row in rows)
    found |= {"word_starts": tokenizer.word_starts, "special_ids": tokenizer.special_ids, "sha256": tokenizer.sha256}
    names = ("cls_id", "sep_id", "mask_id", "pad_id", "unk_id", "separators_between", "second_segment_id", "cls_last")
    found["roles"] = "\n".join(f"{name} {getattr(tokenizer, name)}" for name in names)
    found["pieces"] = "\n".join(map(repr, tokenizer.pieces))
    tokenizer.save(folders.scratch / kind)
    for path in sorted((folders.scratch / kind).iterdir()):
        found[f"saved/{path.name}"] = path.read_bytes()
    return found


def by_graph(kind: str, folders: Folders) -> dict[str, Any]:
    """Ids and offsets of the graph's twin."""
    import tensorflow as tf

    twin = load(kind, folders.read).in_graph()
    ids = twin(tf.constant(TEXTS))
    found = {"ids": ids.values.numpy(), "splits": ids.row_splits.numpy()}
    for name, value in zip(("ids", "starts", "ends"), twin.with_offsets(tf.constant(TEXTS))):
        found[f"with offsets/{name}"] = value.values.numpy()
    return found


def features(kind: str, folders: Folders) -> dict[str, np.ndarray]:
    """Rows for a model: texts and pairs, cut to a length, in Python and in the graph."""
    import tensorflow as tf

    found = {}
    for last in (False, True):
        preprocess = take("Preprocessor")(load(kind, folders.read).with_cls_last(last), 24)
        for name, columns in {"texts": (TEXTS,), "pairs": (TEXTS, TEXTS[::-1])}.items():
            rows = preprocess(*columns)
            data = tf.data.Dataset.from_tensors(tuple(map(tf.constant, columns))).map(preprocess)
            found |= {f"{name}, {last}/Python/{key}": np.asarray(value) for key, value in rows.items()}
            found |= {f"{name}, {last}/graph/{key}": value.numpy() for key, value in next(iter(data)).items()}
    return found
