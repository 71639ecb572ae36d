"""Python objects → rows, by what they can do: no table library is imported here.

Tables: pandas and polars DataFrames, pyarrow Tables, `datasets` Datasets, mappings of columns. Columns:
pandas, polars, pyarrow, NumPy and `datasets` columns, and any ordered iterable of strings or of mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tdd.texts.rows import Rows
from tdd.validate import texts as checks

__all__ = ["rows_of"]

_SOURCE = "memory"


def rows_of(source: Any) -> Rows:
    """Rows of a table, a column, or an iterable."""
    if isinstance(source, Mapping):
        return _rows_of_columns(source)
    fields = _field_names(source)
    if fields is not None and hasattr(source, "__len__"):
        get = source.column if hasattr(source, "column") and hasattr(source, "schema") else source.__getitem__
        return Rows(_SOURCE, len(source), fields, lambda field: _values(get(field)), _place)
    if isinstance(source, (bytes, bytearray, Set)) or not isinstance(source, Iterable):
        raise checks.bad_source(source)
    return _rows_of_items(_values(source))


def _field_names(source: Any) -> tuple[str, ...] | None:
    names = getattr(source, "column_names", None)  # datasets, pyarrow
    if names is None:
        names = getattr(source, "columns", None)  # pandas, polars
    return None if names is None or callable(names) else tuple(names)


def _rows_of_columns(columns: Mapping[Any, Any]) -> Rows:
    if any(_field_names(column) is not None for column in columns.values()):
        raise checks.bad_object(_SOURCE, f"several tables ({', '.join(map(str, columns))}): pass one of them")
    for name, column in columns.items():
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise checks.bad_object(_SOURCE, f"a dict must map fields to columns, but {name!r} is one value")
    values = {name: _values(column) for name, column in columns.items()}
    sizes = {name: len(column) for name, column in values.items()}
    if len(set(sizes.values())) > 1:
        raise checks.bad_object(_SOURCE, f"columns of unequal length: {sizes}")
    return Rows(_SOURCE, next(iter(sizes.values()), 0), tuple(values), values.__getitem__, _place)


def _rows_of_items(items: Sequence[Any]) -> Rows:
    if items and isinstance(items[0], Mapping):
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise checks.bad_record(_SOURCE, _place(index), item)
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
