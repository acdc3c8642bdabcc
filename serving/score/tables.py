"""Writes answers as JSON lines or Parquet: parts first, then the joined tables."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.wire.tensors import DT_STRING
from tfrecords.base.errors import UserError

# Numbers of TensorFlow's types, and what Arrow calls them.
_ARROW = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 6: "int8", DT_STRING: "string", 9: "int64", 10: "bool_"}
Rows = Sequence[Mapping[str, Any]]


class JsonLines:
    """Writes a JSON object per row; a bad row has only `error`."""

    suffix = ".jsonl"

    def __init__(self, outputs: Mapping[str, tuple[int, int]], keep: Sequence[str]):
        self._encode = msgspec.json.Encoder().encode_lines

    def write(self, path: Path, rows: Rows) -> None:
        path.write_bytes(self._encode(rows))

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Joins parts to a table."""
        with open(path, "wb") as table:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, table)


class Parquet:
    """Writes columns: copied fields as strings, typed outputs, and `error`."""

    suffix = ".parquet"

    def __init__(self, outputs: Mapping[str, tuple[int, int]], keep: Sequence[str]):
        try:
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise UserError("--format=parquet needs pyarrow: pip install '.[parquet]'") from error
        self._arrow, self._parquet, self._keep = pyarrow, pyarrow.parquet, keep
        fields = {name: pyarrow.string() for name in keep} | {name: self._type(name, outputs[name]) for name in outputs}
        self._schema = pyarrow.schema([*fields.items(), ("error", pyarrow.string())])

    def _type(self, name: str, spec: tuple[int, int]) -> Any:
        number, rank = spec
        if rank < 0 or number not in _ARROW:
            raise UserError(f"the output '{name}' has no type that a Parquet column has; give --format=jsonl")
        kind = getattr(self._arrow, _ARROW[number])()
        for _ in range(rank - 1):
            kind = self._arrow.list_(kind)
        return kind

    def write(self, path: Path, rows: Rows) -> None:
        rows = [{**row, **{name: _as_string(row[name]) for name in self._keep if name in row}} for row in rows]
        self._parquet.write_table(self._arrow.Table.from_pylist(rows, self._schema), path)

    def join(self, parts: Sequence[Path], path: Path) -> None:
        with self._parquet.ParquetWriter(path, self._schema) as writer:
            for part in parts:
                writer.write_table(self._parquet.read_table(part, schema=self._schema))


FORMATS: dict[str, type[JsonLines] | type[Parquet]] = {"jsonl": JsonLines, "parquet": Parquet}


def _as_string(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
