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
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error
    return tuple(file.schema_arrow.names), _rows(path, file, pyarrow.ArrowException)


def _rows(path: Path, file: Any, failure: type[Exception]) -> Iterator[dict[str, Any]]:
    try:
        for batch in file.iter_batches():
            yield from batch.to_pylist()
    except (OSError, failure) as error:
        raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error
