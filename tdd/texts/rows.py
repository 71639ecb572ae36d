"""Rows of named fields from any source: the one shape that texts and score tables are read from."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tdd.validate import texts as checks

__all__ = ["Place", "Rows", "read_rows"]

Place = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table that is read one column at a time.

    Attributes:
      source: what messages call it, a path or "memory".
      num_rows: how many rows there are.
      fields: names of the fields in the order of their first appearance; empty where rows are bare values.
      column: `(field) -> values`, one a row, None where a row lacks the field; `column("")` for bare values.
      place: `(index) -> words` that lead a person to the row, such as "line 7".
    """

    source: str
    num_rows: int
    fields: tuple[str, ...]
    column: Callable[[str], Sequence[Any]]
    place: Place

    @classmethod
    def of_values(cls, source: str, values: Sequence[Any], place: Place) -> Rows:
        """Rows that are bare values without fields."""
        return cls(source, len(values), (), lambda field: values, place)

    @classmethod
    def of_records(cls, source: str, records: Sequence[Mapping[str, Any]], place: Place) -> Rows:
        """Rows that are mappings; they need not have the same fields."""
        fields = tuple(dict.fromkeys(field for record in records for field in record))

        def column(field: str) -> list[Any]:
            return [record.get(field) for record in records]

        return cls(source, len(records), fields, column, place)


def read_rows(source: Any, *, format: str | None = None) -> Rows:
    """Rows of a file, a folder of .txt files, or a Python object; at least one.

    Args:
      source: see `tdd.texts.load_texts`.
      format: format of a file, where its extension does not tell.

    Raises:
      InputError: nothing can be read, or there are no rows.
    """
    if isinstance(source, (str, os.PathLike)):
        from tdd.texts.files import read_path

        rows = read_path(checks.existing_path(source), format)
    else:
        from tdd.texts.objects import rows_of

        rows = rows_of(source)
    checks.some_rows(rows.source, rows.num_rows)
    return rows
