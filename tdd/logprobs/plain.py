"""Records with a list of numbers: {"id": "a1", "text": "...", "log_probs": [null, -3.2, -0.1]}."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tdd.logprobs.record import Entry
from tdd.texts.rows import Rows
from tdd.validate import logprobs as checks
from tdd.validate.errors import InputError

__all__ = ["FIELDS", "entries"]

FIELDS = ("log_probs", "logprobs", "token_log_probs", "token_logprobs")
"""Names under which the list is found."""


def entries(rows: Rows, *, field: str | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a row; the list may begin with null, for the first token, which has no context."""
    name = _list_field(rows.source, field, rows.fields, FIELDS)

    def column(name: str | None) -> list[Any]:
        return list(rows.column(name)) if name in rows.fields and name is not None else [None] * rows.num_rows

    columns = (column(name), column(id_field or "id"), column(text_field), column("tokens"))
    for index, (values, identifier, text, tokens) in enumerate(zip(*columns, strict=True)):
        place = rows.place(index)
        checks.check_list(rows.source, place, name, values)
        if isinstance(tokens, list):
            checks.check_lengths(rows.source, place, (name, len(values)), ("tokens", len(tokens)))
        yield Entry(place, values, identifier, text if isinstance(text, str) else None)


def _list_field(source: str, field: str | None, fields: Sequence[str], known: Sequence[str]) -> str:
    """The field with the list: the named one, or the only one of the usual names."""
    present = [field] if field is not None else [name for name in known if name in fields]
    if len(present) != 1 or present[0] not in fields:
        wanted = f"there is no field {field!r}" if field is not None else f"the list of numbers could be {present}"
        raise InputError(f"{source}: {wanted}; fields found: {', '.join(map(str, fields))}; name one with field=")
    return present[0]
