import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf.choices import PAIR_LOSSES
from albert_tf.tasks.tables.data_file import FileOptions, columns_of, rows_of, some_held_out, text_key
from albert_tf.tasks.tables.folders import find_table, own_stems, train_file
from albert_tf.tasks.tables.values import number_of, text_of
from tfrecords.base.errors import UserError
from tfrecords.base.tables import DataRow, find_column, read_table
from tfrecords.base.text_files import is_json_lines

_MEND = "say which is meant by --text_column, --second_text_column, --label_column"
# The flags of the columns, by their roles.
_FLAGS = {"anchor": "text_column", "positive": "second_text_column", "score": "label_column"}


class PairExample(NamedTuple):
    """A row of texts: the anchor, a text that matches it or is scored against it, then negatives."""

    texts: tuple[str, ...]
    score: float | None = None
    index: str = ""


@dataclasses.dataclass(frozen=True)
class PairData:
    """Tables of pairs whose rows have all been checked.

    `columns` are the text columns, the anchor's first. `held_out`, bool [rows], marks the "dev" rows of a single file.
    `scores` are the lowest and the highest score.
    """

    loss: str
    columns: tuple[str, ...]
    score: str
    files: Mapping[str, Path]
    encoding: str | None = None
    held_out: np.ndarray | None = None
    rows: int = 0
    scores: tuple[float, ...] = ()

    def examples(self, split: str) -> Iterator[PairExample] | None:
        chosen = None if self.held_out is None else rows_of(split, self.held_out)
        path = self.files.get(split if chosen is None else "train")
        if path is None or (chosen is not None and not chosen.any()):
            return None
        needed = (*self.columns, *filter(None, [self.score]))
        table = read_table(path, encoding=self.encoding).require(needed, _MEND)
        table = table if chosen is None else table.only(chosen)
        return table.read(self._example)

    def _example(self, row: DataRow) -> PairExample:
        texts = tuple(text_of(row, column) for column in self.columns)
        for column, text in zip(self.columns[2:], texts[2:]):
            if text == texts[1]:
                fix = "give another negative, or remove the row"
                raise row.wrong(f"{column} is the {self.columns[1]} too", fix)
        score = number_of(row, self.score) if self.score else None
        return PairExample(texts, score, str(row.line))

    def __str__(self) -> str:
        names = [f"'{name}'" for name in self.columns]
        roles = ["anchor", *["positive" if not self.score or len(names) > 2 else "second text"] * (len(names) > 1)]
        parts = [f"{role} {name}" for role, name in zip(roles, names)]
        parts += [f"negative {name}" for name in names[2:]]
        if self.score:
            low, high = self.scores
            alike = ", higher for more similar texts" * (self.loss == "cosent")
            parts.append(f"score '{self.score}' from {low:g} to {high:g}{alike}")
        rows = f"{self.rows:,} rows"
        if self.held_out is not None:
            out = int(self.held_out.sum())
            rows = f"{self.rows - out:,} rows to train on, {out:,} held out to measure"
            rows += ", equal anchors on one side, and pairs in either order"
        elif "dev" not in self.files:
            rows += ", none held out"
        return f"'{os.path.basename(self.files['train'])}': {', '.join(parts)}; {rows}; loss {self.loss}"


def open_pairs(settings: Any) -> PairData:
    """Finds the columns of --data_file or --data_dir, chooses a loss, and checks every row."""
    folder = getattr(settings, "data_dir", "")
    if not folder:
        columns_of(FileOptions.of(settings))
        files = {"train": Path(settings.data_file)}
    else:
        folder = Path(folder)
        train_file(folder)
        files = {split: find_table(folder, stem) for split, stem in own_stems(folder).items()}
    state = tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in files.values())
    names = ("loss", "teacher", "text_column", "second_text_column", "label_column", "encoding")
    # Mining has no loss, and holds nothing out.
    given = tuple((name, getattr(settings, name, "")) for name in names)
    fraction = 0.0 if folder else getattr(settings, "dev_fraction", 0.0)
    return _opened(tuple(files.items()), given, fraction, state)


@functools.lru_cache(maxsize=4)
def _opened(files: tuple, given: tuple, dev_fraction: float, _state: tuple) -> PairData:
    flags, path = dict(given), files[0][1]
    encoding = flags["encoding"] if dev_fraction or flags["encoding"] else None
    table = read_table(path, encoding=encoding)
    names = dict.fromkeys(table.columns)
    # A later line of JSON may have a negative or a score that the first lacks.
    for row in table.rows if is_json_lines(path) else ():
        names |= dict.fromkeys(row.values)
    data = _with_columns(path, tuple(names), flags)
    data = dataclasses.replace(data, files=dict(files), encoding=encoding)
    anchors, both, scores = [], [], set[float]()
    for example in data.examples("train") or ():
        anchors.append(text_key(example.texts[:1]))
        both.append(text_key(example.texts[:2]))
        scores.update([] if example.score is None else [example.score])
    for split in data.files:
        for _ in data.examples(split) or ():  # Its errors come before any training.
            pass
    if data.score:
        data = dataclasses.replace(data, scores=(min(scores), max(scores)))
    if data.loss == "cosent" and len(scores) == 1:
        raise UserError(
            f"'{path}': every pair has the {data.score} {data.scores[0]:g}, of which --loss=cosent learns nothing; "
            "give different scores, or remove the column if all texts match"
        )
    if not dev_fraction:
        return dataclasses.replace(data, rows=len(anchors))
    keys, labels = np.array(_groups(anchors, both), np.uint64), [("",)] * len(anchors)
    held_out = some_held_out(path, keys, labels, dev_fraction, "anchors")
    return dataclasses.replace(data, held_out=held_out, rows=len(anchors))


def _groups(anchors: Sequence[int], pairs: Sequence[int]) -> list[int]:
    # A number of each row; rows with an anchor or a pair in common have the same.
    above, first = dict[int, int](), dict[int, int]()

    def top(key: int) -> int:
        while above.setdefault(key, key) != key:
            above[key] = key = above[above[key]]
        return key

    for anchor, pair in zip(anchors, pairs):
        one, other = top(anchor), top(first.setdefault(pair, anchor))
        above[max(one, other)] = min(one, other)
    return [top(anchor) for anchor in anchors]


def keys_of(examples: Sequence[PairExample]) -> np.ndarray:
    """Returns the `text_key` of each text, int64 [rows, texts]."""
    keys = [[text_key([text]) for text in example.texts] for example in examples]
    return np.array(keys, np.uint64).astype(np.int64)


def _with_columns(path: Path, names: tuple[str, ...], flags: Mapping[str, str]) -> PairData:
    anchor, positive, score = (
        flags[flag] or find_column(path, names, role, flag, is_optional=True) for role, flag in _FLAGS.items()
    )
    negatives = [name for name in names if name.strip().casefold().startswith("negative")]
    texts = [name for name in (anchor, positive) if name]
    loss = flags["loss"] or ("mse" if flags["teacher"] else "cosent" if score else "multiple_negatives_ranking")
    columns = (*texts, *negatives)
    twice = [name for name in columns if (*columns, score).count(name) > 1]
    there = ", ".join(map(repr, names))
    if twice:
        raise UserError(f"'{path}': the column '{twice[0]}' has two roles; it has {there}; {_MEND}")
    if not anchor or (negatives and not positive):
        role = "positive" if anchor else "anchor"
        unnamed = f"give --{_FLAGS[role]}=..., or put a line of names above the first row"
        raise UserError(f"'{path}' line 1: no column is the {role}; it has {there}; {unnamed}")
    _check_loss(path, loss, columns, score, flags, there)
    return PairData(loss, columns, score, {})


def _check_loss(
    path: Path, loss: str, columns: Sequence[str], score: str, flags: Mapping[str, str], there: str
) -> None:
    rule, documents, teacher = PAIR_LOSSES[loss], len(columns) - 1, flags["teacher"]
    reads_score = loss == "cosent" or (loss == "margin_mse" and not teacher)
    lacks = ""
    if documents < rule.documents:
        lacks = "a column of a negative, such as negative_1; mine_negatives writes them"
        lacks = lacks if documents else "a column of a positive; give --second_text_column=..."
    elif reads_score and (not score or (loss == "margin_mse" and documents != 2)):
        lacks = "a column of scores of the pairs; give --label_column=..."
        if loss == "margin_mse":
            lacks = "a column of margins of one negative; give --label_column=..., or an embedder by --teacher"
    elif loss == "mse" and not teacher:
        lacks = "an embedder to learn from; give --teacher=..."
    if lacks:
        raise UserError(f"'{path}': --loss={loss} needs {lacks}; it has {there}")
    surplus = ""
    if rule.most and documents > rule.most:
        surplus = f"the negatives of {', '.join(columns[2:])}; remove that column"
    elif score and not reads_score:
        surplus = f"the scores of column '{score}'; keep the rows that are meant and remove the column, or give cosent"
    elif teacher and loss not in ("mse", "margin_mse"):
        surplus = "a --teacher; leave it out, or give --loss=mse or margin_mse"
    if surplus:
        raise UserError(f"'{path}': --loss={loss} does not read {surplus}")
