"""Files and folders → rows.

Text formats are decoded as UTF-8 (with or without a byte-order mark), or as UTF-16 with one, and may be compressed.
Lines end at a line feed, alone or after a carriage return: U+2028 and its kin are characters of a text. Blank lines of
.jsonl and .csv and at the end of .txt are skipped.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import logging
import pathlib
import re
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from tdd.runs import plain_csv
from tdd.runs.plain_csv import StringColumn
from tdd.texts.rows import COMMON_TEXT_FIELDS, FORMATS, Rows, check_fields, joined, kind, one_column, shown
from tdd.texts.shards import COMPRESSED, ENDINGS, FORMAT_OF, folder_files, is_compressed
from tdd.validate import InputError, some
from tdd.validate.files import check_fetched, parse_json

_logger = logging.getLogger("tdd")
_FIELD_LIMIT = threading.Lock()
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_OF_AN_ANSWER = ("choices", "details", "meta_info", "prompt_logprobs")
"""Fields of the answer of a server, which is one record (`tdd.logprobs` has the layouts)."""
_OF_TABLES = ("xls", "xlsx", "ods", "dta", "sav", "sas7bdat", "rds", "rdata", "pkl", "pickle", "npy", "npz", "h5")


def read_path(path: pathlib.Path, format: str | None = None) -> Rows:
    """Rows of one file, or of a folder: one row a .txt file, its relative path the id; or those of all its shards."""
    if path.is_dir():
        files = folder_files(path, format)
        if files[0].name.endswith(ENDINGS["txt"]) and format in (None, "txt"):
            return _read_texts(path, files)
        return dataclasses.replace(joined([read_path(file, format) for file in files]), source=str(path))
    readers = {"jsonl": _read_jsonl, "json": _read_json, "csv": _read_csv, "txt": _read_txt}
    name = _file_format(path, format)
    if name in ("parquet", "arrow"):
        from tdd.texts.arrow import read_arrow, read_parquet

        return read_parquet(path) if name == "parquet" else read_arrow(path)
    if name == "eval":
        from tdd.texts.inspect_logs import read_eval

        return read_eval(path)
    data = _read_bytes(path)
    if name == "csv" and len(data) >= plain_csv.LARGE:
        columns = plain_csv.read_plain_csv(data.removeprefix(codecs.BOM_UTF8))
        if columns is not None:
            return _rows_of_lines(str(path), columns)
    content = _decode(path, data)
    del data
    return _read_tsv(str(path), content) if name == "tsv" else readers[name](str(path), content)


def _read_bytes(path: pathlib.Path) -> bytes:
    try:
        data = path.read_bytes()
        check_fetched(path, data)
        if not is_compressed(data):
            return data
        from tdd.texts.compressed import decompressed

        return decompressed(str(path), data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _decode(path: pathlib.Path, data: bytes) -> str:
    try:
        marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not data.startswith(
            codecs.BOM_UTF32_LE
        )
        content = data.decode("utf-16" if marked else "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise InputError(
            f"{path}: line {line} is not {error.encoding.upper()} (byte 0x{byte:02x}); convert the file first"
        ) from error
    if not marked and 4 * data.count(0) > len(data):
        raise InputError(
            f"{path}: {data.count(0)} of {len(data)} bytes are zero, as in UTF-16 without a byte-order mark; "
            "convert the file to UTF-8 first"
        )
    return content


def _read_jsonl(source: str, content: str) -> Rows:
    """An object or a string a line; or one JSON value over several lines, which some programs name so."""
    values, lines = [], []
    if (whole := _one_value(content)) is not None:
        return _rows_of_value(source, whole)
    for number, line in enumerate(_lines(content), start=1):
        if line.strip():
            values.append(_parse_json(source, f"line {number}", line))
            lines.append(number)
    return _rows_of_json(source, values, lambda index: f"line {lines[index]}")


def _lines(content: str) -> list[str]:
    """The lines of a text, whose ends are carriage returns where it has no other."""
    return content.split("\n" if "\n" in content else "\r")


def _one_value(content: str) -> Any:
    """A JSON array, or an object that goes on after its first line, if that is all there is; None for JSON lines."""
    first = next((line for line in plain_csv.lines(content) if line.strip()), "").lstrip()
    with contextlib.suppress(ValueError):
        if first.startswith("{"):
            with contextlib.suppress(ValueError):
                parse_json(first)
                return None
        return parse_json(content) if first.startswith(("[", "{")) else None
    return None


def _read_json(source: str, content: str) -> Rows:
    some_rows(source, len(content.strip()))
    return _rows_of_value(source, _parse_json(source, "the content (JSON lines need format='jsonl')", content))


def _rows_of_value(source: str, value: Any) -> Rows:
    if isinstance(value, dict) and "samples" in value and isinstance(value.get("eval"), dict):
        from tdd.texts.inspect_logs import rows_of_log

        return rows_of_log(source, value)
    if isinstance(value, dict) and len(value) == 1 and not _is_one_record(value):  # {"data": [...]}
        (value,) = value.values()
    if isinstance(value, dict) and _is_one_record(value):
        value = [value]
    if isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        return _rows_of_lists(source, value)
    if isinstance(value, dict) and value.keys().isdisjoint(("id", "text", *COMMON_TEXT_FIELDS)):  # {"version", "data"}
        arrays = [inner for inner in value.values() if isinstance(inner, list) and inner and isinstance(inner[0], dict)]
        value = arrays[0] if len(arrays) == 1 else value
    if not isinstance(value, list):
        held = f"an object with the fields {some([*value])}" if isinstance(value, dict) else shown(value)
        raise InputError(
            f"{source}: the JSON must be an array of objects or of strings, one a text, or an object that holds one "
            f"such array, or columns of one length; found is {held}. Save the array that is meant into a file of its "
            'own (a pandas table with to_json(orient="records"))'
        )
    return _rows_of_json(source, value, _element)


def _is_one_record(value: Mapping[str, Any]) -> bool:
    """Whether an object is the answer of a server, or a text with what belongs to it, and no table of columns."""
    lists = [held for held in value.values() if isinstance(held, list)]
    if len(lists) == len(value) > 1 and len({*map(len, lists)}) == 1:
        return False
    if len(value) > 1 and not value.keys().isdisjoint(_OF_AN_ANSWER):
        return True
    if len(value) == 1:
        ((name, held),) = value.items()
        entries = held if isinstance(held, list) else []
        if name == "choices":
            return any(isinstance(entry, dict) and "logprobs" in entry for entry in entries)
        if name == "prompt_logprobs":
            return bool(entries) and not any(isinstance(entry, list) for entry in entries)
        return name in ("details", "meta_info") and isinstance(held, dict)
    named = any(isinstance(value.get(name), str) for name in ("text", *COMMON_TEXT_FIELDS))
    return named and not any(held and isinstance(held[0], dict) for held in lists)


def _element(index: int) -> str:
    return f"element {index + 1}"


def _rows_of_json(source: str, values: Sequence[Any], place: Callable[[int], str]) -> Rows:
    """Objects with named fields, or bare strings (MIMIR's JSON lines)."""
    if values and all(isinstance(value, str) for value in values):
        return Rows.of_values(source, values, place)
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise bad_record(source, place(index), value)
    return Rows.of_records(source, values, place)


def _rows_of_lists(source: str, lists: Mapping[str, list[Any]]) -> Rows:
    """Columns of a table; lists that are none (MIMIR's members and non-members) are told from each other by name."""
    sizes = {name: len(column) for name, column in lists.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name} ({size})" for name, size in sizes.items())
        raise InputError(
            f"{source}: the lists {counts} have different lengths, so they are no columns of one table: which of them "
            "is meant? Save each into a file of its own"
        )
    return Rows(source, next(iter(sizes.values())), tuple(lists), lists.__getitem__, _element)


def _rows_of_lines(source: str, columns: Mapping[str, StringColumn]) -> Rows:
    """Rows of a table whose header is line 1 and whose rows are the next lines, one each."""
    num_rows = len(next(iter(columns.values())))
    return Rows(source, num_rows, tuple(columns), columns.__getitem__, lambda index: f"line {index + 2}")


def _read_tsv(source: str, content: str) -> Rows:
    """A table with tabs, in the quoting of CSV or without any, where a quotation mark is a character like others."""
    unquoted = (content.startswith('"') or '\n"' in content or '\t"' in content) and not _is_quoted(source, content)
    if unquoted:
        _logger.warning("%s: quotation marks are read as part of the texts: they do not quote fields as in CSV", source)
    return _read_csv(source, content, "\t", csv.QUOTE_NONE if unquoted else csv.QUOTE_MINIMAL)


def _is_quoted(source: str, content: str) -> bool:
    """Whether a table with tabs is in the quoting of CSV.

    It is not where every line has the fields of the first one and a field opens a quotation that it does not close:
    unless the reader of CSV accepts the file, and as lines some of its fields are empty.
    """
    lines = [line.rstrip("\r\n") for line in plain_csv.lines(content) if line.strip("\r\n")]
    num_tabs = lines[0].count("\t")
    if num_tabs == 0 or lines[0].startswith('"') or any(line.count("\t") != num_tabs for line in lines):
        return True
    marked = (line.split("\t") for line in lines if line.startswith('"') or '\t"' in line)
    if all(_QUOTED.fullmatch(field) for fields in marked for field in fields if field.startswith('"')):
        return True
    if not any(line.startswith("\t") or line.endswith("\t") or "\t\t" in line for line in lines):
        return False
    with contextlib.suppress(InputError):
        return _read_csv(source, content, "\t").num_rows > 0
    return False


def _read_csv(source: str, content: str, delimiter: str = ",", quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> Rows:
    rows: list[list[str]] = []
    lines: list[int] = []
    with _FIELD_LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        reader = csv.reader(plain_csv.lines(content), strict=True, delimiter=delimiter, quoting=quoting)
        try:
            start = 1
            for row in reader:
                if row and (rows or row != plain_csv.SEPARATOR_ROW):
                    check_fields(source, len(row))
                    rows.append(row)
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            raise _bad_csv(source, start, error) from error
        finally:
            csv.field_size_limit(limit)
    header = tuple(rows[0]) if rows else ()
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            detail = f"{len(row)} columns where the header has {len(header)}{one_column(header)}"
            raise _bad_csv(source, line, detail)
    body = rows[1:]
    unnamed = [i for i, name in enumerate(header) if not name] if header.count("") > 1 else []
    empty = {i for i in unnamed if not any(row[i].strip() for row in body)}  # columns that Excel adds
    at = {name: position for position, name in enumerate(header) if position not in empty}
    return Rows(
        source,
        len(body),
        tuple(name for position, name in enumerate(header) if position not in empty),
        lambda field: [row[at[field]] for row in body],
        lambda index: f"line {lines[index + 1]}",
    )


def _read_txt(source: str, content: str) -> Rows:
    lines = [line.removesuffix("\r") for line in _lines(content)]
    while lines and not lines[-1].strip():
        lines.pop()
    return Rows.of_values(source, lines, lambda index: f"line {index + 1}")


def _read_texts(path: pathlib.Path, files: Sequence[pathlib.Path]) -> Rows:
    """One text a file of a folder."""
    names = [entry.relative_to(path).as_posix() for entry in files]
    texts = [_decode(entry, _read_bytes(entry)).rstrip("\r\n") for entry in files]
    columns = {"id": names, "text": texts}
    return Rows(str(path), len(files), ("id", "text"), columns.__getitem__, lambda index: f"file {names[index]}")


def _parse_json(source: str, place: str, content: str) -> Any:
    try:
        return parse_json(content)
    except ValueError as error:
        raise InputError(f"{source}: {place} is not JSON ({error}): {shown(content)}") from error


def _file_format(path: pathlib.Path, format: str | None) -> str:
    """The format of a file: the declared one, or the one its extension names."""
    supported = ", ".join(FORMATS)
    if format is not None:
        if format not in FORMATS:
            raise InputError(f"format={format!r} is not known; supported: {supported}")
        return format
    suffixes = [suffix.lower().lstrip(".") for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    name = suffixes[-1] if suffixes else ""
    if name not in FORMAT_OF:
        extension = f"the extension .{name}" if name else "no extension"
        table = "; save the table as .csv or .parquet" if name in _OF_TABLES else ""
        raise InputError(
            f"{path}: cannot tell the format from {extension}{table}; supported: "
            f"{', '.join('.' + name for name in FORMATS)} (text formats also .gz and .zst), or a folder of "
            ".txt files or of shards; or name the format"
        )
    return FORMAT_OF[name]


def _bad_csv(source: str, line: int, detail: object) -> InputError:
    return InputError(f"{source}: line {line} is not valid CSV: {detail}")


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
