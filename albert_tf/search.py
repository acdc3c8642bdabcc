"""Builds an index of texts, and finds the texts nearest to a query.

python -m albert_tf.search --model=minilm --text_file=passages.txt --index_dir=index
python -m albert_tf.search --index_dir=index --query="where does the river end"
"""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from albert_tf.choices import VECTORS
from albert_tf.embeddings.index import saved_source
from albert_tf.loading.hub import check_model
from albert_tf.tasks.tables.folders import SUFFIXES
from albert_tf.tasks.tables.values import text_of
from albert_tf.trainer_settings import Applied
from tfrecords.answers.texts import TextModel
from tfrecords.base.errors import UserError, refuse
from tfrecords.base.script import run_main, say_next, start_tensorflow
from tfrecords.base.settings import CheckedSettings, setting
from tfrecords.base.tables import PARQUET, find_column, read_lines, read_table
from tfrecords.base.text_files import ending

# A text, and what is printed with it.
Row = tuple[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Building(CheckedSettings, only="text_file"):
    """Settings of an index to build."""

    text_file: str = setting("", help="texts to index: .txt with a text a line, .csv, .tsv, JSON lines or .parquet")
    text_column: str = setting("", help="column of the text in a table; empty: text, sentence or the like")
    keep: str = setting(
        "id", help="columns of a table to print before each text, comma-separated, of those that are there"
    )
    vectors: str = setting(
        "float32",
        help="format of the vectors in memory; the best of int8 ones are compared again in float32",
        choices=VECTORS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asking(CheckedSettings, only="query"):
    """Settings of a search."""

    query: tuple[str, ...] = setting((), help="text to search for; may be given several times")
    top: int = setting(10, help="texts to print for each query", at_least=1)
    exact: bool = setting(
        False,
        help="compare the query with every text in float32: slower with many texts, and finds the nearest for sure",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(
    Asking,
    Building,
    Applied,
    defaults={"model": "", "batch_size": 32},
    meanings={"model": "the one that built the index"},
):
    """The command's flags."""

    groups: ClassVar[dict[str, str]] = {
        "Index": "index_dir model",
        "Build": "text_file text_column keep vectors batch_size",
        "Ask": "query top exact",
    }

    index_dir: str = setting(help="folder of the index")

    def __post_init__(self):
        super().__post_init__()
        refuse({
            "give --text_file=... to build an index, or --query=... to ask one":
                not self.text_file and not self.query,
            "--query= is empty; give a text to search for":
                not all(text.strip() for text in self.query),
            "--text_file needs --model=..., the embedder that builds the index":
                self.text_file and not self.model,
        })  # fmt: skip


def main(settings: SearchSettings) -> None:
    """Builds or searches an index."""
    rows, model = read_rows(settings), settings.model or saved_source(settings.index_dir)
    check_model(model, settings.allow_pickle)
    start_tensorflow()
    from albert_tf.loading.load import load

    build_or_search(settings, rows, lambda: load(model))


def build_or_search(settings: SearchSettings, rows: Sequence[Row], open_model: Callable[[], TextModel]) -> None:
    """Builds an index of the rows' texts or, without a text file, opens a saved one; prints the hits for each query."""
    from albert_tf.embeddings.index import index_folder, make_index, open_index

    if settings.text_file:
        folder, loaded = index_folder(settings.index_dir), open_model()
        texts, kept = zip(*rows) if rows else ((), ())
        kept = kept if any(kept) else ()
        index = make_index(loaded, texts, settings.vectors, settings.batch_size, show_progress=True, kept=kept)
        index.save(folder)
        print(f"wrote {settings.index_dir}: {len(index.texts):,} texts, {settings.vectors} vectors")
        if not settings.query:
            say_next(f'python -m albert_tf.search --index_dir={shlex.quote(settings.index_dir)} --query="..."')
    else:
        index = open_index(settings.index_dir, open_model())
    for query, hits in zip(settings.query, index.search(settings.query, settings.top, settings.exact)):
        if len(settings.query) > 1:
            print(query)
        for hit in hits:
            print("  ".join([f"{hit.score:.3f}", *map(str, hit.kept.values()), hit.text]))


def read_rows(settings: SearchSettings) -> list[Row]:
    """Returns the texts to index with the columns to keep; [] without a file."""
    if not settings.text_file:
        return []
    path = Path(settings.text_file)
    if not path.is_file():
        raise UserError(f"--text_file={path} is no file; give a file of texts")
    if ending(path) in (*SUFFIXES, PARQUET):
        table = read_table(path)
        column = settings.text_column or find_column(path, table.columns, "text")
        kept = [name for name in settings.keep.split(",") if name in table.columns or settings.given(("keep",))]
        table = table.require([column, *kept], "give --text_column=... and --keep=...")
        return list(table.read(lambda row: (text_of(row, column), {name: row.values[name] for name in kept})))
    if given := settings.given(("text_column", "keep")):
        raise UserError(f"{given} is for a table, which '{path}' is not; leave it out")
    return [(line.rstrip("\r\n"), {}) for line in read_lines(path) if line.strip()]


def run() -> None:
    """Runs the command."""
    run_main(main, SearchSettings)


if __name__ == "__main__":
    run()
