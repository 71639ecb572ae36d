"""Rows of named fields from any source: the one shape that texts and score tables are read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Place", "Rows"]

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
