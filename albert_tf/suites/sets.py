"""Data sets for embeddings, read without TensorFlow.

A folder of SemEval, SICK, Cranfield or BEIR is recognized by its file names, a table by its columns; see
docs/guide/measure_embeddings.md.
"""

import dataclasses
import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from albert_tf.tasks.tables.folders import DESCRIPTIONS, OWN_STEMS, SUFFIXES, find_tables
from albert_tf.tasks.tables.values import number_of, text_of
from tfrecords.base.errors import UserError
from tfrecords.base.tables import PARQUET, DataRow, Table, read_table
from tfrecords.base.text_files import is_gzipped


@dataclasses.dataclass(frozen=True)
class PairSet:
    """Pairs of texts with their similarities (STS).

    Attributes:
        labels: float64 [pairs].
        parts: for SemEval, the number of pairs by file.
    """

    kind: ClassVar[str] = "STS"
    name: str
    files: Sequence[Path]
    firsts: Sequence[str]
    seconds: Sequence[str]
    labels: np.ndarray
    parts: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Queries, passages, and judgements of their relevance.

    Attributes:
        queries: texts by id.
        passages: texts by id.
        judgements: {query id: {passage id: relevance}}; 0: irrelevant.
    """

    kind: ClassVar[str] = "retrieval"
    name: str
    files: Sequence[Path]
    queries: Mapping[str, str]
    passages: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]


EmbeddingSet = PairSet | Ranking

_COLUMNS = {
    "first": ("sentence1", "sentence_1", "sentence_a", "text1", "question1", "#1 string"),
    "second": ("sentence2", "sentence_2", "sentence_b", "text2", "question2", "#2 string"),
    "score": ("score", "similarity", "similarity_score", "relatedness_score"),
}
_HINT = "docs/guide/measure_embeddings.md says how a set's files are named"


def find_sets(data_dir: str) -> list[EmbeddingSet]:
    """Reads every data set in comma-separated folders; each folder is a set or holds sets.

    Raises:
        UserError: no set is found, two have the same name, or a file is unknown or broken.
    """
    found = []
    for place in data_dir.split(","):
        if not (folder := Path(place)).is_dir():
            raise UserError(f"--data_dir={place} is no folder; give folders of data sets, separated by commas")
        if not (here := list(_sets_in(folder))):
            raise UserError(f"--data_dir={place} holds no data set; {_HINT}")
        found += here
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two data sets are called '{twice[0]}'; rename the folder of one")
    return found


def _sets_in(folder: Path) -> Iterator[EmbeddingSet]:
    paths = [path for path in sorted(folder.iterdir()) if not DESCRIPTIONS.fullmatch(path.name)]
    names = {path.name for path in paths if path.is_file()}
    if not names:
        for path in paths:
            yield from _sets_in(path)
        return
    read = next((reader for pattern, reader in _LAYOUTS if any(re.match(pattern, name) for name in names)), _read_table)
    found, known = read(folder)
    known |= {path.name for path in found.files}
    if unknown := sorted({path.name for path in paths} - known):
        raise UserError(f"'{folder / unknown[0]}' is no file of a set for {found.kind}; remove it, or {_HINT}")
    yield found


def _read_semeval(folder: Path) -> tuple[PairSet, set[str]]:
    paths = sorted(path for path in folder.iterdir() if re.search(_SEMEVAL, path.name))
    rows, parts = [], {}
    for path in paths:
        table = read_table(path, ("score", "first", "second"), published=True)
        # Pairs without a score were never part of the task.
        scored = table.changed(lambda row: row if row.values["score"].strip() else None)
        part = _pairs(scored, ("first", "second"), "score")
        rows += part
        parts[re.sub(_SEMEVAL, "", path.name)] = len(part)
    return _as_pairs(folder.name, paths, rows, parts), set()


def _read_sick(folder: Path) -> tuple[PairSet, set[str]]:
    known = {path.name for path in folder.glob("SICK_*.txt*")}
    path = _only(folder, "SICK_test_annotated.txt")
    header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    table = read_table(path, header, published=True)
    lines = table.changed(lambda row: row if row.line > 1 else None)
    rows = _pairs(lines, header[1:3], header[3])
    return _as_pairs(folder.name, [path], rows), known


def _pairs(table: Table, texts: Sequence[str], score: str) -> list[tuple]:
    def pair(row: DataRow) -> tuple:
        return (*(text_of(row, column) for column in texts), number_of(row, score))

    return list(table.require((*texts, score)).read(pair))


def _as_pairs(name: str, files: Sequence[Path], rows: list[tuple], parts=None) -> PairSet:
    if not rows:
        raise UserError(f"'{files[0]}' has no rows to measure on; {_HINT}")
    firsts, seconds, labels = zip(*rows)
    labels = np.array(labels, "float64")
    if len(set(labels)) < 2:
        raise UserError(f"'{files[0]}': every pair has the score {labels[0]:g}, so nothing can be measured")
    return PairSet(name, files, firsts, seconds, labels, parts or {})


def _read_cranfield(folder: Path) -> tuple[Ranking, set[str]]:
    paths = [_only(folder, name) for name in ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt")]
    documents, queries, judged = (_text(path) for path in paths)
    # The text begins with the title.
    found = re.findall(r"<docno>\s*(\d+)\s*</docno>.*?<text>(.*?)</text>", documents, re.DOTALL)
    passages = {name: " ".join(text.split()) for name, text in found}
    titles = re.findall(r"<title>(.*?)</title>", queries, re.DOTALL)
    # Judgements count the queries of the file; its own numbers have gaps.
    asked = {str(number): " ".join(text.split()) for number, text in enumerate(titles, 1)}
    judgements: dict[str, dict[str, int]] = {}
    for number, line in enumerate(judged.splitlines(), 1):
        if len(cells := line.split()) == 4:
            judgements.setdefault(cells[0], {})[cells[2]] = int(cells[3])
        elif cells:
            raise UserError(f"'{paths[2]}' line {number}: {line!r} is not query, 0, passage and relevance")
    return _ranking(folder.name, paths, asked, passages, judgements), set()


def _read_beir(folder: Path) -> tuple[Ranking, set[str]]:
    corpus, asked = (_only(folder, name) for name in ("corpus.jsonl", "queries.jsonl"))
    passages: dict[str, str] = {}
    queries: dict[str, str] = {}
    judgements: dict[str, dict[str, int]] = {}
    table = read_table(corpus)
    for row in table.require(["_id", "text"]).rows:
        title = str(row.values.get("title") or "")
        text = f"{title} {text_of(row, 'text', takes_empty=True)}".strip()
        _add(row, passages, row.values["_id"], text)
    table = read_table(asked)
    for row in table.require(["_id", "text"]).rows:
        _add(row, queries, row.values["_id"], text_of(row, "text"))
    stems = ("test", *OWN_STEMS["dev"])
    there = next((stem for stem in stems if any((folder / "qrels").glob(f"{stem}.tsv*"))), "test")
    path = _only(folder / "qrels", f"{there}.tsv")
    table = read_table(path)
    for row in table.require(["query-id", "corpus-id", "score"]).rows:
        relevance = number_of(row, "score", -1000, 1000)
        if relevance != int(relevance):
            raise row.wrong(f"score {relevance:g} is no whole number")
        judged = judgements.setdefault(str(row.values["query-id"]), {})
        # TREC writes -1 for some passages that are irrelevant.
        _add(row, judged, row.values["corpus-id"], max(0, int(relevance)))
    return _ranking(folder.name, [corpus, asked, path], queries, passages, judgements), {path.parent.name}


def _add(row: DataRow, found: dict, name: Any, value: Any) -> None:
    if found.setdefault(str(name), value) != value:
        raise row.wrong(f"'{name}' is there before with another value", "keep one")


def _ranking(name, files, queries, passages, judgements) -> Ranking:
    for query, judged in judgements.items():
        lost = query if query not in queries else next((one for one in judged if one not in passages), None)
        if lost is not None:
            raise UserError(f"'{files[-1]}': a judgement names '{lost}', which is not there; fix the file")
    # As in MTEB, a query counts if it has a relevant passage.
    counted = {query: judged for query, judged in judgements.items() if any(judged.values())}
    if not counted:
        raise UserError(f"'{files[-1]}': no query has a passage that answers it; nothing can be measured")
    return Ranking(name, files, queries, passages, counted)


def _read_table(folder: Path) -> tuple[PairSet, set[str]]:
    tables = find_tables(folder, (*SUFFIXES, PARQUET))
    stems = ("test", *OWN_STEMS["dev"])
    known = {path.name for stem, path in tables.items() if stem in (*stems, "train")}
    path = next((tables[stem] for stem in stems if stem in tables), None)
    if path is None:
        other = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise UserError(f"'{folder}' holds no test or dev table; it holds {other}; {_HINT}")
    table = read_table(path)
    first, second, score = (_column(table, names) for names in _COLUMNS.values())
    if not (first and second and score):
        raise UserError(f"'{path}': the columns {', '.join(map(repr, table.columns))} are those of no set; {_HINT}")
    return _as_pairs(folder.name, [path], _pairs(table, (first, second), score)), known


def _column(table: Table, names: Sequence[str]) -> str:
    there = {column.strip().casefold(): column for column in reversed(table.columns)}
    return next((there[name] for name in names if name in there), "")


def _only(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"'{folder}' holds no {name}; {_HINT}")


def _text(path: Path) -> str:
    opener: Callable = gzip.open if is_gzipped(path) else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            return file.read()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from error


_SEMEVAL = r"\.test\.tsv(\.gz)?$"
# What the first file of a layout that fits is called, and the reader of the layout.
_LAYOUTS = (
    (rf".*{_SEMEVAL}", _read_semeval),
    (r"SICK_", _read_sick),
    (r"cranqrel\.", _read_cranfield),
    (r"corpus\.jsonl", _read_beir),
)
