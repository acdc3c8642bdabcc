"""Finds hard negatives for pairs by exact search."""

import itertools
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.embeddings.index import exact_nearest, key_of
from albert_tf.loading.load import load
from albert_tf.tasks.tables.pair_file import PairData, PairExample, keys_of
from albert_tf.tasks.tables.values import text_of
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.parts import Parts
from tfrecords.base.script import progress_bar
from tfrecords.base.tables import find_column, read_table, write_table

if TYPE_CHECKING:
    from albert_tf.mine_negatives import MiningSettings

# Texts that are encoded between two writes, and rows that are searched at a time.
_CHUNK, _ROWS = 2048, 4096


def mine(settings: "MiningSettings", pairs: PairData) -> Path:
    """Writes a table of pairs with hard negatives and returns its path; a killed run resumes."""
    output = Path(settings.output_file)
    files.make_output_dir(output.parent)
    examples = list(pairs.examples("train") or ())
    passages = _passages(settings) if settings.passages else [one.texts[1] for one in examples]
    passages = list(dict(zip(keys_of([PairExample((text,)) for text in passages])[:, 0].tolist(), passages)).values())
    loaded = load(settings.model)
    model, width = loaded.identity(), loaded.dimensions
    # Passages come first; a positive that is a passage too is encoded once.
    sides = {
        "documents": (loaded.encode_document, list(dict.fromkeys([*passages, *(one.texts[1] for one in examples)]))),
        "anchors": (loaded.encode_query, list(dict.fromkeys(one.texts[0] for one in examples))),
    }
    parts = Parts(files.make_output_dir(output.with_name(f".{output.name}.parts")))
    parts.claim({name: key_of(model, texts) for name, (_, texts) in sides.items()})
    vectors = {
        name: _vectors(partial(encode, batch_size=settings.batch_size), texts, parts, name, width)
        for name, (encode, texts) in sides.items()
    }
    places = {name: {text: number for number, text in enumerate(texts)} for name, (_, texts) in sides.items()}
    anchors = vectors["anchors"][[places["anchors"][one.texts[0]] for one in examples]]
    positives = vectors["documents"][[places["documents"][one.texts[1]] for one in examples]]
    found = hard_negatives(
        anchors, positives, vectors["documents"][: len(passages)], _own(examples, passages),
        settings.num_negatives, settings.relative_margin, settings.range_max,
    )  # fmt: skip
    rows = [(*one.texts, *(passages[n] for n in row)) for one, row in zip(examples, found) if row is not None]
    if not rows:
        raise UserError(
            f"no row of '{settings.data_file}' has {settings.num_negatives} passages below the margin among the "
            f"{settings.range_max} nearest; give more --passages, a lower --num_negatives or a higher --range_max; "
            "the vectors stay for the next run"
        )
    write_table(output, [*pairs.columns, *_new_names(pairs.columns, settings.num_negatives)], rows)
    shutil.rmtree(parts.folder)
    print(f"wrote {output}: {len(rows):,} rows, {settings.num_negatives} of {len(passages):,} passages each")
    if left := len(examples) - len(rows):
        fix = "; a higher --range_max may find more" * (settings.range_max < len(passages))
        print(f"{left:,} rows have fewer below the margin and are left out{fix}")
    return output


def _new_names(taken: Sequence[str], number: int) -> list[str]:
    names = (f"negative_{n}" for n in itertools.count(1))
    return list(itertools.islice((name for name in names if name not in taken), number))


def hard_negatives(
    anchors: np.ndarray,
    positives: np.ndarray,
    passages: np.ndarray,
    own: Sequence[Sequence[int]],
    number: int,
    relative_margin: float,
    range_max: int = 100,
) -> list[list[int] | None]:
    """Returns the passage numbers of each anchor's hard negatives, the most similar first; None if there are too few.

    Vectors are float32 [rows, dimensions] of length 1. `own` lists the passages to exclude for an anchor, such as its
    positives. Candidates are those of the `range_max` nearest others whose cosine is at most (1 -
    `relative_margin`) times the positive's.

    >>> found = hard_negatives(*[np.eye(4, dtype="float32")] * 3, [[0], [1], [2], [3]], 2, 0.05)
    >>> found[0]
    [1, 2]
    """
    found: list[list[int] | None] = []
    limits = np.sum(anchors * positives, axis=-1)
    limits = limits - np.abs(limits) * relative_margin
    for start in progress_bar(range(0, len(anchors), _ROWS), unit="block", desc="searching"):
        part = slice(start, start + _ROWS)
        top = min(range_max + max(map(len, own[part])), len(passages))
        nearest = exact_nearest(anchors[part], passages, top, lambda first, second: first @ second.T)
        for limit, excluded, cosines, best in zip(limits[part], map(set, own[part]), *nearest):
            others = [place for place in zip(cosines, best.tolist()) if place[1] not in excluded][:range_max]
            chosen = [place for cosine, place in others if cosine <= limit][:number]
            found.append(chosen if len(chosen) == number else None)
    return found


def _own(examples: Sequence[PairExample], passages: Sequence[str]) -> list[list[int]]:
    # An anchor's own texts are itself, its positives and the negatives that it has.
    texts = keys_of(examples)
    belongs = dict[int, set[int]]()
    for anchor, *others in texts.tolist():
        belongs.setdefault(anchor, {anchor}).update(others)
        # A pair belongs together in either order.
        belongs.setdefault(others[0], {others[0]}).add(anchor)
    places = dict[int, list[int]]()
    for number, (key,) in enumerate(keys_of([PairExample((text,)) for text in passages]).tolist()):
        places.setdefault(key, []).append(number)
    return [[place for key in belongs[anchor] for place in places.get(key, ())] for anchor in texts[:, 0].tolist()]


def _passages(settings: "MiningSettings") -> list[str]:
    path = Path(settings.passages)
    if not path.is_file():
        raise UserError(f"--passages={path} does not exist; give a table with a column of passages")
    table = read_table(path)
    column = settings.passage_column or find_column(path, table.columns, "positive", "passage_column", True)
    column = column or find_column(path, table.columns, "text", "passage_column")
    table = table.require([column], "say which is meant by --passage_column")
    return list(table.read(lambda row: text_of(row, column)))


def _vectors(
    encode: Callable[[list[str]], np.ndarray], texts: list[str], parts: Parts, name: str, width: int
) -> np.ndarray:
    vectors = np.empty((len(texts), width), np.float32)
    with progress_bar(total=len(texts), unit="text", desc=name) as bar:
        for start in range(0, len(texts), _CHUNK):
            chunk, part = slice(start, start + _CHUNK), f"{name}-{start}"
            path = parts.file(f"{part}.npy")
            if parts.done(part):
                vectors[chunk] = np.load(path)
            else:
                vectors[chunk] = encode(texts[chunk])
                np.save(path, vectors[chunk])
                parts.finish(part, {}, [path], durable=False)
            bar.update(len(texts[chunk]))
    return vectors
