"""Finds hard negatives for pairs by exact search."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.index import exact_nearest, identity, key_of
from albert_tf.loading import load
from albert_tf.tasks.columns import find_column, optional_column
from albert_tf.tasks.pair_file import PairData, PairExample, keys_of
from albert_tf.tasks.tables import read_table, write_table
from albert_tf.tasks.values import text_of
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar

if TYPE_CHECKING:
    from albert_tf.mine_negatives import MiningSettings

# Texts that are encoded between two writes, rows that are searched at a time, and how many more passages are ranked
# for those with too few negatives among the first.
_CHUNK, _ROWS, _MORE = 2048, 4096, 4


def mine(settings: "MiningSettings", pairs: PairData) -> Path:
    """Writes a table of pairs with hard negatives and returns its path; a killed run resumes."""
    output = Path(settings.output_file)
    files.make_output_dir(output.parent)
    examples = list(pairs.examples("train") or ())
    passages = list(dict.fromkeys(_passages(settings) if settings.passages else (one.texts[1] for one in examples)))
    loaded = load(settings.model)
    model = identity(loaded)
    sides = {
        "passages": (loaded.encode_document, passages),
        "anchors": (loaded.encode_query, list(dict.fromkeys(one.texts[0] for one in examples))),
        "positives": (loaded.encode_document, list(dict.fromkeys(one.texts[1] for one in examples))),
    }
    vectors, kept = {}, []
    for name, (encode, texts) in sides.items():
        vectors[name], path = _vectors(encode, texts, output, f"{model} {name}", name, settings.batch_size)
        kept.append(path)
    places = {name: {text: number for number, text in enumerate(texts)} for name, (_, texts) in sides.items()}
    anchors = vectors["anchors"][[places["anchors"][one.texts[0]] for one in examples]]
    positives = vectors["positives"][[places["positives"][one.texts[1]] for one in examples]]
    found = hard_negatives(
        anchors, positives, vectors["passages"], _own(examples, passages),
        settings.num_negatives, settings.relative_margin, settings.range_min, settings.range_max,
    )  # fmt: skip
    rows = [(*one.texts[:2], *(passages[n] for n in row)) for one, row in zip(examples, found) if row is not None]
    if not rows:
        raise UserError(
            f"no row of '{settings.data_file}' has {settings.num_negatives} passages below the margin; give more "
            "--passages, a lower --num_negatives or a higher --range_max"
        )
    header = [*pairs.columns[:2], *(f"negative_{number + 1}" for number in range(settings.num_negatives))]
    write_table(output, header, rows)
    for path in kept:
        path.unlink(missing_ok=True)
    left = f"; {len(examples) - len(rows):,} rows have fewer and are left out" if len(rows) < len(examples) else ""
    print(f"wrote {output}: {len(rows):,} rows, {settings.num_negatives} of {len(passages):,} passages each{left}")
    return output


def hard_negatives(
    anchors: np.ndarray,
    positives: np.ndarray,
    passages: np.ndarray,
    own: Sequence[Sequence[int]],
    number: int,
    relative_margin: float,
    range_min: int = 0,
    range_max: int = 100,
) -> list[list[int] | None]:
    """Returns the passage numbers of each anchor's hard negatives, the most similar first; None if there are too few.

    Vectors are float32 [rows, dimensions] of length 1. A negative's cosine is at most the positive's, reduced by the
    fraction `relative_margin`. `own` lists the passages to exclude for an anchor, such as its positives. Of the other
    passages below the limit, those ranked `range_min` to `range_max` are candidates.

    >>> found = hard_negatives(*[np.eye(4, dtype="float32")] * 3, [[0], [1], [2], [3]], 2, 0.05)
    >>> found[0]
    [1, 2]
    """
    found: list[list[int] | None] = [None] * len(anchors)
    limits = np.sum(anchors * positives, axis=-1)
    limits = limits - np.abs(limits) * relative_margin
    for start in progress_bar(range(0, len(anchors), _ROWS), unit="block", desc="searching"):
        rows, top = np.arange(start, min(start + _ROWS, len(anchors))), min(range_max, len(passages))
        while len(rows):
            scores, places = exact_nearest(anchors[rows], passages, top, lambda first, second: first @ second.T)
            few = []
            for row, cosines, best in zip(rows.tolist(), scores, places):
                mine = set(own[row])
                below = [place for place in best[cosines <= limits[row]].tolist() if place not in mine]
                chosen = below[range_min : range_min + number]
                if len(chosen) == number:
                    found[row] = chosen
                else:
                    few.append(row)
            rows = np.array(few if top < len(passages) else [], np.int64)
            top = min(_MORE * top, len(passages))
    return found


def _own(examples: Sequence[PairExample], passages: Sequence[str]) -> list[list[int]]:
    texts = keys_of([PairExample(one.texts[:2]) for one in examples])
    belongs = dict[int, set[int]]()
    for anchor, positive in texts.tolist():
        belongs.setdefault(anchor, {anchor}).add(positive)
    places = dict[int, list[int]]()
    for number, (key,) in enumerate(keys_of([PairExample((text,)) for text in passages]).tolist()):
        places.setdefault(key, []).append(number)
    return [[place for key in belongs[anchor] for place in places.get(key, ())] for anchor, _ in texts.tolist()]


def _passages(settings: "MiningSettings") -> list[str]:
    path = Path(settings.passages)
    if not path.is_file():
        raise UserError(f"--passages={path} does not exist; give a table with a column of passages")
    table = read_table(path)
    column = settings.passage_column or optional_column(path, table.columns, "positive", "passage_column")
    column = column or find_column(path, table.columns, "text", "passage_column")
    table = table.require([column], "say which is meant by --passage_column")
    return [text_of(table, row, column) for row in table.rows]


def _vectors(
    encode: Callable[..., np.ndarray], texts: list[str], output: Path, key: str, name: str, batch_size: int
) -> tuple[np.ndarray, Path]:
    path = output.with_name(f".{output.name}.{key_of(key, texts)[:16]}.{name}.f32")
    width = encode(texts[:1]).shape[-1]
    done = path.stat().st_size // (4 * width) if path.is_file() else 0
    with open(path, "ab") as file, progress_bar(total=len(texts), initial=done, unit="text", desc=name) as bar:
        file.truncate(done * 4 * width)
        for start in range(done, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            file.write(np.ascontiguousarray(encode(chunk, batch_size=batch_size), "float32").tobytes())
            file.flush()
            bar.update(len(chunk))
    return np.fromfile(path, np.float32).reshape(-1, width), path
