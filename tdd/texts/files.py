"""Files and folders → rows.

Text formats are decoded as UTF-8 (with or without a byte-order mark) and may be gzipped; what decompresses to far more
than texts do is refused (`LARGEST_DECOMPRESSED`). Lines end at a line
feed, alone or after a carriage return: U+2028 and its kin are characters of a text. Blank lines of .jsonl and
.csv and at the end of .txt are skipped.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import pathlib
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.runs import plain_csv
from tdd.runs.plain_csv import StringColumn
from tdd.texts.rows import FORMATS, Rows, kind, shown
from tdd.validate import InputError
from tdd.validate.files import parse_json

_FIELD_LIMIT = threading.Lock()
_NAMED = 5


def read_path(path: pathlib.Path, format: str | None = None) -> Rows:
    """Rows of one file, or of a folder: one row a .txt file, its relative path the id."""
    if path.is_dir():
        return _read_folder(path)
    readers = {"jsonl": _read_jsonl, "json": _read_json, "csv": _read_csv, "txt": _read_txt}
    name = _file_format(path, format)
    if name == "parquet":
        return _read_parquet(path)
    data = _read_bytes(path)
    if name == "csv" and len(data) >= plain_csv.LARGE:
        columns = plain_csv.read_plain_csv(data.removeprefix(codecs.BOM_UTF8))
        if columns is not None:
            return _rows_of_lines(str(path), columns)
    content = _decode(path, data)
    del data
    return _read_csv(str(path), content, "\t") if name == "tsv" else readers[name](str(path), content)


def _read_bytes(path: pathlib.Path) -> bytes:
    try:
        data = path.read_bytes()
        return _decompressed(path, data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _decode(path: pathlib.Path, data: bytes) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise InputError(f"{path}: line {line} is not UTF-8 (byte 0x{byte:02x}); convert the file first") from error


def _decompressed(path: pathlib.Path, data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(_most_decompressed(len(data)) + 1)
    _check_decompressed(str(path), len(content), len(data))
    return content


def _read_jsonl(source: str, content: str) -> Rows:
    records: list[Mapping[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        value = _parse_json(source, f"line {number}", line)
        if not isinstance(value, dict):
            raise bad_record(source, f"line {number}", value)
        records.append(value)
        lines.append(number)
    return Rows.of_records(source, records, lambda index: f"line {lines[index]}")


def _read_json(source: str, content: str) -> Rows:
    some_rows(source, len(content.strip()))
    array = _parse_json(source, "the content (JSON lines need format='jsonl')", content)
    if isinstance(array, dict) and len(array) == 1:  # {"data": [...]}
        (array,) = array.values()
    if not isinstance(array, list):
        raise InputError(
            f"{source}: the JSON must be an array of objects or of strings, one a text, or an object that holds one "
            "such array"
        )

    def place(index: int) -> str:
        return f"element {index + 1}"

    if array and all(isinstance(value, str) for value in array):
        return Rows.of_values(source, array, place)
    for index, value in enumerate(array):
        if not isinstance(value, dict):
            raise bad_record(source, place(index), value)
    return Rows.of_records(source, array, place)


def _rows_of_lines(source: str, columns: Mapping[str, StringColumn]) -> Rows:
    """Rows of a table whose header is line 1 and whose rows are the next lines, one each."""
    num_rows = len(next(iter(columns.values())))
    return Rows(source, num_rows, tuple(columns), columns.__getitem__, lambda index: f"line {index + 2}")


def _read_csv(source: str, content: str, delimiter: str = ",") -> Rows:
    rows: list[list[str]] = []
    lines: list[int] = []
    with _FIELD_LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        reader = csv.reader(io.StringIO(content, newline=""), strict=True, delimiter=delimiter)
        try:
            start = 1
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            raise _bad_csv(source, reader.line_num, error) from error
        finally:
            csv.field_size_limit(limit)
    header = tuple(rows[0]) if rows else ()
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise _bad_csv(source, line, f"{len(row)} columns where the header has {len(header)}")
    at = {name: position for position, name in enumerate(header)}
    body = rows[1:]
    return Rows(
        source,
        len(body),
        header,
        lambda field: [row[at[field]] for row in body],
        lambda index: f"line {lines[index + 1]}",
    )


def _read_txt(source: str, content: str) -> Rows:
    lines = [line.removesuffix("\r") for line in content.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return Rows.of_values(source, lines, lambda index: f"line {index + 1}")


def _read_folder(path: pathlib.Path) -> Rows:
    files = sorted(entry for entry in path.rglob("*") if entry.name.endswith((".txt", ".txt.gz")) and entry.is_file())
    if not files:
        names = ", ".join(sorted(entry.name for entry in path.iterdir())[:_NAMED])
        what = f"it holds {names}" if names else "it is empty"
        raise InputError(f"{path}: the folder holds no .txt file; {what}")
    home = path.resolve()
    for file in files:
        if not (place := file.resolve()).is_relative_to(home):
            raise InputError(
                f"{file} is a link out of the folder, to {place}; copy the file into the folder, or remove the link"
            )
    names = [entry.relative_to(path).as_posix() for entry in files]
    texts = [_decode(entry, _read_bytes(entry)).rstrip("\r\n") for entry in files]
    columns = {"id": names, "text": texts}
    return Rows(str(path), len(files), ("id", "text"), columns.__getitem__, lambda index: f"file {names[index]}")


def _read_parquet(path: pathlib.Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            fields, num_rows = tuple(file.schema_arrow.names), file.metadata.num_rows
            groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
    except (pyarrow.ArrowException, OSError) as error:
        raise _bad_parquet(str(path), error) from error

    _check_decompressed(str(path), max(size, num_rows), path.stat().st_size)

    def column(field: str) -> Sequence[Any]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                return _values_of(file.read(columns=[field]).column(field))
        except (pyarrow.ArrowException, OSError) as error:
            raise _bad_parquet(str(path), error) from error

    return Rows(str(path), num_rows, fields, column, lambda index: f"row {index + 1}")


def _values_of(column: Any) -> Sequence[Any]:
    """Strings without an absent one as a `StringColumn`, other values as a list."""
    import pyarrow

    strings = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
    if column.type not in strings or column.null_count:
        return column.to_pylist()
    column = column.cast(pyarrow.string())
    column.validate(full=True)  # a file may hold invalid UTF-8
    return StringColumn(column)


def _parse_json(source: str, place: str, content: str) -> Any:
    try:
        return parse_json(content)
    except ValueError as error:
        raise InputError(f"{source}: {place} is not JSON ({error}): {shown(content)}") from error


LARGEST_DECOMPRESSED = 2**30
"""Bytes to which any compressed file may decompress, whatever its own size."""
_LARGEST_RATIO = 100
"""Times its own size to which a larger one may decompress; texts are at ten, a bomb is at a thousand."""


def _file_format(path: pathlib.Path, format: str | None) -> str:
    """The format of a file: the declared one, or the one its extension names."""
    supported = ", ".join(FORMATS)
    if format is not None:
        if format not in FORMATS:
            raise InputError(f"format={format!r} is not known; supported: {supported}")
        return format
    suffixes = [suffix.lower().lstrip(".") for suffix in path.suffixes]
    if suffixes and suffixes[-1] == "gz":
        suffixes.pop()
    name = suffixes[-1] if suffixes else ""
    name = {"ndjson": "jsonl", "pq": "parquet"}.get(name, name)
    if name not in FORMATS:
        extension = f"the extension .{name}" if name else "no extension"
        raise InputError(
            f"{path}: cannot tell the format from {extension}; supported: "
            f"{', '.join('.' + name for name in FORMATS)} (text formats also .gz), a folder of .txt files, "
            "or format=..."
        )
    return name


def _most_decompressed(size: int) -> int:
    """Bytes to which a compressed file of so many bytes may decompress."""
    return max(LARGEST_DECOMPRESSED, _LARGEST_RATIO * size)


def _check_decompressed(source: str, content: int, size: int) -> None:
    """A compressed file of `size` bytes holds no more than texts do."""
    if content > _most_decompressed(size):
        raise InputError(
            f"{source}: its {size:,} bytes decompress to more than {_most_decompressed(size):,}, as no text does; if "
            "that is meant, decompress it first and give the plain file"
        )


def _bad_csv(source: str, line: int, detail: object) -> InputError:
    return InputError(f"{source}: line {line} is not valid CSV: {detail}")


def _bad_parquet(source: str, error: Exception) -> InputError:
    return InputError(f"{source}: not a readable Parquet file: {str(error).splitlines()[0]}")


def some_rows(source: str, num_rows: int) -> None:
    """Check that there is at least one row."""
    if num_rows == 0:
        raise InputError(f"{source}: empty, there is not a single row in it")


def bad_record(source: str, place: str, value: object) -> InputError:
    """A row that should be a record of named fields."""
    return InputError(
        f"{source}: {place} is not an object with named fields but {kind(value)}: {shown(value)}; "
        'expected for example {"id": "a1", "text": "..."}'
    )
