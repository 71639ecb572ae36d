"""What answers of OpenAI-compatible servers have in common: batches, choices, identifiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tdd.texts.rows import Rows
from tdd.validate import logprobs as checks

__all__ = ["Choice", "choices", "records"]

_SERVER_IDS = ("cmpl-", "chatcmpl-", "batch_req_", "gen-")
"""How identifiers begin that a server drew at random; they name no text."""


class Choice(NamedTuple):
    """One choice of an answer.

    Attributes:
      place: words that lead a person to it.
      record: the answer.
      value: the choice.
      number: choices in the answer.
      id: identifier of the choice, or None.
    """

    place: str
    record: Mapping[str, Any]
    value: Mapping[str, Any]
    number: int
    id: Any


def records(rows: Rows, id_field: str | None) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Place, answer and identifier of every row; answers inside a batch file are taken out of their wrapping."""
    columns = {name: rows.column(name) for name in rows.fields}
    for index in range(rows.num_rows):
        row = {name: column[index] for name, column in columns.items() if column[index] is not None}
        identifier = row.get(id_field) if id_field else row.get("custom_id", row.get("id"))
        if id_field is None and isinstance(identifier, str) and identifier.startswith(_SERVER_IDS):
            identifier = None
        record = row
        if "response" in rows.fields and "choices" not in row:
            record = {**row, **checks.batch_body(rows.source, rows.place(index), row)}
        yield rows.place(index), record, identifier


def choices(rows: Rows, id_field: str | None) -> Iterator[Choice]:
    """Every choice of every answer. Several choices of one answer are called "<id>-<index>"."""
    for place, record, identifier in records(rows, id_field):
        found = checks.check_choices(rows.source, place, record.get("choices"))
        for position, value in enumerate(found):
            if len(found) == 1:
                yield Choice(place, record, value, 1, identifier)
                continue
            index = value.get("index", position)
            own = None if identifier is None else f"{identifier}-{index}"
            yield Choice(f"{place}, choice {index}", record, value, len(found), own)
