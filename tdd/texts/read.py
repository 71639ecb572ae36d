"""Any source → rows of named fields: files and folders by path, Python objects by what they can do.

No table library is imported here. Tables: pandas and polars DataFrames, pyarrow Tables, `datasets` Datasets, mappings
of columns. Columns: pandas, polars, pyarrow, NumPy and `datasets` columns, and any ordered iterable of strings or of
mappings.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tdd.texts.files import bad_record, read_path, some_rows
from tdd.texts.rows import Rows, kind, shown
from tdd.validate.errors import InputError

__all__ = ["read_rows"]

_SOURCE = "memory"


def read_rows(source: Any, *, format: str | None = None) -> Rows:
    """Rows of a source as `tdd.texts.load_texts` takes it; at least one.

    Raises:
      InputError: nothing can be read, a field is there twice, or there are no rows.
    """
    is_path = isinstance(source, (str, os.PathLike))
    rows = read_path(_existing_path(source), format) if is_path else _rows_of(source)
    repeated = sorted({str(name) for name in rows.fields if list(rows.fields).count(name) > 1})
    if repeated:
        raise InputError(
            f"{rows.source}: several columns are called {', '.join(map(repr, repeated))}; rename all but one"
        )
    some_rows(rows.source, rows.num_rows)
    return rows


def _existing_path(source: str | os.PathLike[str]) -> pathlib.Path:
    """The path of a file or folder that exists.

    Named pipes, which would wait for a writer, and devices are refused. The pipes of a shell have no place in the file
    system: /dev/stdin and /dev/fd/N are read.
    """
    text = os.fspath(source)
    if not os.path.exists(text):
        raise InputError(
            f"no such file or folder: {shown(text)}; a single string is always a path, "
            "so pass a list of strings to give the texts themselves"
        )
    place = os.path.realpath(text)
    of_a_shell = os.path.abspath(text).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
    if os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place) or of_a_shell):
        raise InputError(
            f"{text} is neither a file nor a folder but a named pipe or a device; copy what it gives into a "
            "file, or pipe it into /dev/stdin with format=... (--input-format)"
        )
    return pathlib.Path(text)


def _rows_of(source: Any) -> Rows:
    """Rows of a table, a column, or an iterable."""
    if isinstance(source, Mapping):
        return _rows_of_columns(source)
    fields = _field_names(source)
    if fields is not None and hasattr(source, "__len__"):
        get = source.column if hasattr(source, "column") and hasattr(source, "schema") else source.__getitem__
        return Rows(_SOURCE, len(source), fields, lambda field: _values(get(field)), _place)
    if isinstance(source, (bytes, bytearray, Set)) or not isinstance(source, Iterable):
        raise InputError(
            f"cannot read rows from {kind(source)}; pass a path, a list of strings or of dicts, a dict of "
            "columns, or a pandas, polars, pyarrow or datasets table or column"
        )
    return _rows_of_items(_values(source))


def _field_names(source: Any) -> tuple[str, ...] | None:
    names = getattr(source, "column_names", None)  # datasets, pyarrow
    if names is None:
        names = getattr(source, "columns", None)  # pandas, polars
    return None if names is None or callable(names) else tuple(names)


def _rows_of_columns(columns: Mapping[Any, Any]) -> Rows:
    if any(_field_names(column) is not None for column in columns.values()):
        raise InputError(f"{_SOURCE}: several tables ({', '.join(map(str, columns))}): pass one of them")
    for name, column in columns.items():
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise InputError(f"{_SOURCE}: a dict must map fields to columns, but {name!r} is one value")
    values = {name: _values(column) for name, column in columns.items()}
    sizes = {name: len(column) for name, column in values.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{_SOURCE}: columns of unequal length: {sizes}")
    return Rows(_SOURCE, next(iter(sizes.values()), 0), tuple(values), values.__getitem__, _place)


def _rows_of_items(items: Sequence[Any]) -> Rows:
    if items and isinstance(items[0], Mapping):
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise bad_record(_SOURCE, _place(index), item)
        return Rows.of_records(_SOURCE, items, _place)
    return Rows.of_values(_SOURCE, items, _place)


def _values(column: Any) -> list[Any]:
    for name in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; NumPy
        convert = getattr(column, name, None)
        if callable(convert):
            values = convert()
            return values if isinstance(values, list) else [values]
    return list(column)


def _place(index: int) -> str:
    return f"index {index}"
