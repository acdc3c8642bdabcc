from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrecords.base.errors import UserError, first_line

ENDING = ".parquet"


def read(path: Path) -> tuple[tuple[str, ...], Iterator[dict[str, Any]]]:
    """Returns the column names of a file, and its rows as Python values."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"'{path}' is Parquet, which needs pyarrow: pip install pyarrow") from error
    # Python has no form for some of its times, and its binding decodes a damaged name.
    damaged = OSError, ValueError, OverflowError, pyarrow.ArrowException
    try:
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        names = tuple(file.schema_arrow.names)
    except damaged as error:
        raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error
    return names, _rows(path, file, damaged)


def _rows(path: Path, file: Any, damaged: tuple[type[Exception], ...]) -> Iterator[dict[str, Any]]:
    try:
        for batch in file.iter_batches():
            yield from batch.to_pylist()
    except damaged as error:
        raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error
