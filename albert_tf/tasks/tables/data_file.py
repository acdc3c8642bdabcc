"""A user's single file of examples."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from albert_tf.tasks.tables.values import check_known, is_missing, kind_of_labels, names_of, tagged_words, text_of
from tfrecords.base.errors import UserError, printable, refuse
from tfrecords.base.tables import ENDINGS, DataRow, Table, check_encoding, find_column, read_table
from tfrecords.base.text_files import ending

# Quotation marks and dashes that editors put in place of others.
_ALIKE = str.maketrans("\u2018\u2019\u2010\u2013\u2014\u2212", "''----")
_WRITTEN_AS_FLOAT = re.compile(r"\A(-?\d+)\.0+\Z")
MEND_COLUMNS = "say which is meant by --text_column, --second_text_column, --label_column"


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """How to read a file; options left empty are detected.

    A `dev_fraction` of 1 is for a file without training rows. `known` are the labels that a row may have; () allows
    any. `decimal_comma` and `has_missing` are those of the labels' kind.
    """

    path: str
    task: str = ""
    text_column: str = ""
    second_text_column: str = ""
    label_column: str = ""
    encoding: str | None = ""
    dev_fraction: float = 0.0
    known: tuple[str, ...] = ()
    decimal_comma: bool = False
    has_missing: bool = False

    @classmethod
    def of(cls, settings: Any) -> "FileOptions":
        names = [field.name for field in dataclasses.fields(cls) if hasattr(settings, field.name)]
        return cls(settings.data_file, **{name: getattr(settings, name) for name in names})

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.text_column, self.second_text_column)))


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A file whose rows have all been read and checked.

    Attributes:
        labels: number of rows by label, in the order of label numbers; {} for regression.
        repeated: number of rows whose text an earlier row has.
    """

    options: FileOptions
    labels: dict[str, int]
    held_out: np.ndarray
    repeated: int

    def table(self, split: str) -> Table | None:
        wanted = rows_of(split, self.held_out)
        return _read(self.options).only(wanted) if wanted.any() else None

    def __str__(self) -> str:
        options, name = self.options, os.path.basename(self.options.path)
        texts = " and ".join(map(repr, options.texts))
        there = {name: count for name, count in self.labels.items() if count}
        parts = [f"{printable(name)} {count:,}" for name, count in itertools.islice(there.items(), 12)]
        parts += [f"{len(there) - 12:,} more"] * (len(there) > 12)
        what = {"classification": "classes", "multilabel": "labels, several a text", "tagging": "tags"}
        labels = f"{len(there)} {what[options.task]} ({', '.join(parts)})" if there else "numbers"
        labels += " with a decimal comma" * options.decimal_comma
        count, out = len(self.held_out), int(self.held_out.sum())
        rows = f"{count:,} rows"
        if out < count:
            held_out = f"{out:,}" if out else "none"
            rows = f"{count - out:,} rows to train on, {held_out} held out to measure"
            rows += f", equal texts on one side ({self.repeated:,} repeated)" if out and self.repeated else ""
        return f"'{name}': text {texts}, label '{options.label_column}': {labels}; {rows}"


def open_data_file(options: FileOptions) -> DataFile:
    """Reads a file, fills in options left empty, and checks every row.

    Raises:
        UserError: an unusable file or row; the message says how to fix it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "reviews.csv"
    >>> _ = path.write_text("Review;Stars\\n" + "".join(f"film {n};{n % 2}\\n" for n in range(20)))
    >>> print(open_data_file(FileOptions(str(path), dev_fraction=0.1)))
    'reviews.csv': text 'Review', label 'Stars': 2 classes (0 10, 1 10); 18 rows to train on, 2 held out to measure
    """
    columns_of(options)
    state = Path(options.path).stat()
    return _opened(options, (state.st_mtime_ns, state.st_size))


def columns_of(options: FileOptions) -> tuple[str, ...]:
    """Returns the column names of a file."""
    path = Path(options.path)
    if not path.is_file():
        what = "is a folder; give it by --data_dir" if path.is_dir() else "does not exist"
        raise UserError(f"--data_file={path} {what}; give one CSV, TSV, JSON lines or Parquet file")
    if ending(path) not in ENDINGS:
        raise UserError(f"--data_file={path} ends in none of {', '.join(ENDINGS)}; save it as one of these")
    if options.encoding:
        check_encoding(options.encoding)
    return _read(options).columns


@functools.lru_cache(maxsize=4)
def _opened(options: FileOptions, _state: tuple[int, int]) -> DataFile:
    path, columns = Path(options.path), _read(options).columns
    label = options.label_column or find_column(path, columns, "label")
    text = options.text_column or find_column(path, columns, "text")
    options = dataclasses.replace(options, label_column=label, text_column=text)
    check_columns(text, options.second_text_column, label)
    if options.task in ("", "regression"):
        found = kind_of_labels(_values(options, label))
        has_missing = found.has_missing and not (options.task or options.known)
        options = dataclasses.replace(
            options, task=options.task or found.kind, decimal_comma=found.decimal_comma, has_missing=has_missing
        )
    keys, labels = _scan(options)
    counts = collections.Counter(itertools.chain.from_iterable(labels))
    if not options.known:
        check_labels(options.task, path, label, counts, len(labels))
    names = options.known or ordered_labels(options.task, counts)
    held_out = np.full(len(keys), options.dev_fraction == 1)
    if 0 < options.dev_fraction < 1:
        held_out = some_held_out(path, keys, labels, options.dev_fraction, "texts")
    return DataFile(options, {name: counts[name] for name in names}, held_out, len(keys) - len(np.unique(keys)))


def rows_of(split: str, held_out: np.ndarray) -> np.ndarray:
    """Returns which rows a split has."""
    return {"train": ~held_out, "dev": held_out}.get(split, np.zeros_like(held_out))


def _read(options: FileOptions) -> Table:
    table = read_table(Path(options.path), encoding=options.encoding)
    if not options.decimal_comma:
        return table

    def with_point(row: DataRow) -> DataRow:
        number = str(row.values[options.label_column]).replace(",", ".")
        return row._replace(values=row.values | {options.label_column: number})

    return table.changed(with_point)


def _required(options: FileOptions) -> Table:
    return _read(options).require((*options.texts, options.label_column), MEND_COLUMNS)


def _values(options: FileOptions, column: str) -> Iterator[Any]:
    # Wrong rows end the values here; reading describes them with all others.
    with contextlib.suppress(UserError):
        for row in _required(options).rows:
            yield row.values[column]


def _scan(options: FileOptions) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    table, column = _required(options), options.label_column
    known = dict.fromkeys(options.known)
    keys, labels, longest = [], [], 0
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(row: DataRow) -> tuple[list[str], tuple[str, ...]]:
        if options.task == "tagging":
            words, tags = tagged_words(row, options.text_column, column)
            texts, found = [" ".join(words)], tuple(sorted(set(tags)))
        else:
            texts = [text_of(row, name) for name in options.texts]
            if options.has_missing and is_missing(row.values[column]):
                fix = "fill it or remove the row, or give --task=classification if it is a class"
                raise row.wrong(f"{column} {row.values[column]!r} is a missing value among numbers", fix)
            found = names_of(options.task, row, column)
        if known:
            check_known(row, column, found, known)
        return texts, found

    for texts, found in table.read(read):
        longest = max(longest, texts[0].count(" "))
        keys.append(text_key(texts))
        labels.append(shared.setdefault(found, found))
    if options.task == "tagging" and not (longest or known) and len(keys) > 1:
        raise UserError(
            f"'{options.path}': every row has one word; write a sentence a row, its words and its tags each separated "
            "by spaces"
        )
    return np.array(keys, np.uint64), labels


def text_key(texts: Sequence[str]) -> int:
    """Returns a 64-bit hash of texts that ignores their order, case, spacing and Unicode composition.

    It decides for splits, batches and mining which rows or texts are equal.
    """
    folded = (" ".join(unicodedata.normalize("NFD", text).casefold().split()) for text in texts)
    text = "\0".join(sorted(folded))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=b"0").digest(), "big")


def some_held_out(
    path: Path, keys: np.ndarray, labels: Sequence[Sequence[str]], fraction: float, what: str
) -> np.ndarray:
    """Calls `hold_out` for groups of equal `keys`; if it holds out none, raises UserError about `what` (the groups)."""
    groups, group_of_row = np.unique(keys, return_inverse=True)
    held_out = hold_out(group_of_row, labels, fraction)
    if not held_out.any():
        raise UserError(
            f"'{path}': --dev_fraction={fraction} of {len(keys)} rows with {len(groups)} different {what} holds out "
            "none; give more rows, or --dev_fraction=0 to measure nothing"
        )
    return held_out


def hold_out(group_of_row: np.ndarray, labels: Sequence[Sequence[str]], fraction: float) -> np.ndarray:
    """Returns which rows to hold out, bool [rows]: about `fraction` of the rows of each label.

    Rows with equal texts form a group, with one number in `group_of_row`, and stay together. A group belongs to the
    rarest of its labels. If a label has several groups, at least one is held out, but never all.
    """
    counts = collections.Counter(itertools.chain.from_iterable(labels))
    rank = {name: number for number, name in enumerate(sorted(counts, key=lambda name: (counts[name], name)))}
    sizes = np.bincount(group_of_row)
    stratum = np.full(len(sizes), len(rank))
    of_row = np.array([min((rank[name] for name in of_row), default=len(rank)) for of_row in labels], np.int64)
    np.minimum.at(stratum, group_of_row, of_row)
    chosen = np.zeros(len(sizes), bool)
    order = np.argsort(stratum, kind="stable")
    for groups in np.split(order, np.flatnonzero(np.diff(stratum[order])) + 1):
        if len(groups) == 1:
            continue
        rows, smallest = sizes[groups].sum(), groups[np.argmin(sizes[groups])]
        left = min(max(1, int(fraction * rows + 0.5)), rows - sizes[smallest])
        for group in groups:
            if sizes[group] <= left:
                chosen[group] = True
                left -= sizes[group]
        # Each group may have more rows than requested.
        chosen[smallest] |= not chosen[groups].any()
    return chosen[group_of_row]


def check_columns(text: str, second: str, label: str) -> None:
    """Raises UserError if one column has two roles."""
    refuse({
        f"--second_text_column={second} is --text_column too; name another":
            second == text,
        f"--label_column={label} is a column of texts too; name another":
            label in (text, second),
    })  # fmt: skip


def check_labels(kind: str, path: Path, column: str, names: Collection[str], rows: int) -> None:
    """Raises UserError if a column's values cannot be labels."""
    if kind == "multilabel" and not names:
        raise UserError(f"'{path}' line 1: no row has a {column}; give a file with labels")
    if kind == "classification" and len(names) in (1, rows):
        what = "every row has the same" if len(names) == 1 else "no two rows have the same"
        raise UserError(f"'{path}': {what} {column}; is another column or --task=regression meant?")
    alike: dict[str, str] = {}
    for name in sorted(names):
        # Such as 1 and 1.0, which pandas writes for integers in a column with empty cells, or an invisible character.
        seen = " ".join("".join(one for one in unicodedata.normalize("NFKC", name) if one.isprintable()).split())
        seen = seen.translate(_ALIKE)
        seen = "O" if kind == "tagging" and seen == "0" else _WRITTEN_AS_FLOAT.sub(r"\1", seen)
        other = alike.setdefault(seen.casefold(), name)
        if other == name:
            continue
        shown = [
            ascii(one) if unicodedata.normalize("NFKC", other) == unicodedata.normalize("NFKC", name) else repr(one)
            for one in (other, name)
        ]
        both = f"'{path}': {column} has both {shown[0]} and {shown[1]}"
        if other.casefold() == name.casefold() and other.upper() != "O" and not _is_boolean(name):
            logging.warning("%s, which count as two; if they are one, write one of them in all rows", both)
        else:
            raise UserError(f"{both}; write one of them in all rows")


def _is_boolean(name: str) -> bool:
    return name.casefold() in ("true", "false", "yes", "no")


def ordered_labels(kind: str, names: Collection[str]) -> list[str]:
    """Sorts label names: the tag "O" first, whole numbers by value, then others by alphabet.

    >>> ordered_labels("classification", ["b", "10", "9"]), ordered_labels("tagging", ["B-LOC", "O"])
    (['9', '10', 'b'], ['O', 'B-LOC'])
    """
    if kind == "tagging":
        return sorted(names, key=lambda tag: (tag != "O", tag))
    if kind == "multilabel":
        return sorted(names)
    whole = {name: name.removeprefix("-").isdecimal() for name in names}
    return sorted(names, key=lambda name: (not whole[name], int(name) if whole[name] else 0, name))
