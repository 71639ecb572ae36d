"""Parquet and Arrow files → rows; `datasets` saves its folders as Arrow streams."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from tdd.runs.plain_csv import StringColumn
from tdd.texts.compressed import check_decompressed
from tdd.texts.rows import Rows
from tdd.validate import InputError
from tdd.validate.files import check_fetched


def read_parquet(path: pathlib.Path) -> Rows:
    """Rows of a Parquet file; columns are read when they are asked for."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            fields, num_rows = tuple(file.schema_arrow.names), file.metadata.num_rows
            groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, "Parquet", error) from error

    check_decompressed(str(path), max(size, num_rows), path.stat().st_size)

    def column(field: str) -> Sequence[Any]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                return _values_of(file.read(columns=[field]).column(field))
        except (pyarrow.ArrowException, OSError) as error:
            raise _unreadable(path, "Parquet", error) from error

    return Rows(str(path), num_rows, fields, column, lambda index: f"row {index + 1}")


def read_arrow(path: pathlib.Path) -> Rows:
    """Rows of an Arrow file, a stream (as `datasets` writes it) or a file with a footer (Feather)."""
    import pyarrow

    read, size = [], 0
    try:
        with pyarrow.memory_map(str(path)) as source:
            framed = source.read(6) == b"ARROW1"
            source.seek(0)
            with (pyarrow.ipc.open_file if framed else pyarrow.ipc.open_stream)(source) as opened:
                count = opened.num_record_batches if framed else None
                batches = map(opened.get_batch, range(count)) if count is not None else opened
                for batch in batches:
                    size += max(batch.nbytes, batch.num_rows)
                    check_decompressed(str(path), size, path.stat().st_size)
                    read.append(batch)
                schema = opened.schema
        table = pyarrow.Table.from_batches(read, schema)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, "Arrow", error) from error

    def column(field: str) -> Sequence[Any]:
        try:
            return _values_of(table.column(field))
        except pyarrow.ArrowException as error:
            raise _unreadable(path, "Arrow", error) from error

    return Rows(str(path), table.num_rows, tuple(table.column_names), column, lambda index: f"row {index + 1}")


def _values_of(column: Any) -> Sequence[Any]:
    """Strings without an absent one as a `StringColumn`, other values as a list."""
    import pyarrow

    strings = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
    if column.type not in strings or column.null_count:
        return column.to_pylist()
    column = column.cast(pyarrow.string())
    column.validate(full=True)  # a file may hold invalid UTF-8
    return StringColumn(column)


def _unreadable(path: pathlib.Path, format: str, error: Exception) -> InputError:
    check_fetched(path)
    return InputError(f"{path}: not a readable {format} file: {(str(error).splitlines() or ['damaged'])[0]}")
