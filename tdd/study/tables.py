"""Rows of numbers as Parquet and CSV, and what belongs to them as JSON: each file whole or not at all."""

from __future__ import annotations

import csv
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.runs.atomic import atomic_path, write_atomically
from tdd.runs.folder import to_json

__all__ = ["read", "write", "write_json"]


def write(rows: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> None:
    """`results.parquet` and `results.csv` in a folder that exists. Missing numbers are empty in the CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [_cell(row[name]) for row in rows] for name in rows[0]}
    with atomic_path(folder / "results.parquet") as place:
        pq.write_table(pa.table({name: _alike(values) for name, values in columns.items()}), place)
    with atomic_path(folder / "results.csv") as place, open(place, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for values in zip(*columns.values(), strict=True):
            writer.writerow(["" if isinstance(x, float) and math.isnan(x) else x for x in values])


def read(folder: pathlib.Path) -> dict[str, list[Any]]:
    """The columns of `results.parquet`."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(folder / "results.parquet").read().to_pydict()


def write_json(value: Any, path: pathlib.Path) -> None:
    """Readable JSON; what JSON cannot say becomes null or words."""
    write_atomically(path, to_json(value).encode())


def _cell(value: Any) -> Any:
    """A value that a table can hold."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _alike(values: list[Any]) -> list[Any]:
    """A column of one type: numbers of two kinds as floats, anything else that is mixed as words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
