"""Records with numbers of their own: a list with one number a token, or one sum for the whole text.

Plain: {"id": "a1", "text": "...", "log_probs": [null, -3.2, -0.1]}.

lm-evaluation-harness, `samples_*.jsonl`: a line has `doc_id`, `arguments` (what was asked: [[text]] or {"gen_args_0":
{"arg_0": text}}) and `filtered_resps`: [sum] for `loglikelihood_rolling`, [[sum, is_greedy]] for `loglikelihood` of a
continuation (the last argument) given a context; numbers may be written as strings. The number of tokens in a sum is
not in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tdd.logprobs.record import Entry, check_lengths, check_list
from tdd.texts.rows import Rows, shown
from tdd.validate import InputError

__all__ = ["FIELDS", "lm_eval_entries", "plain_entries"]

FIELDS = ("log_probs", "logprobs", "token_log_probs", "token_logprobs")
"""Names under which the list is found."""


def plain_entries(rows: Rows, *, field: str | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a row; the list may begin with null, for the first token, which has no context."""
    present = [field] if field is not None else [name for name in FIELDS if name in rows.fields]
    if len(present) != 1 or present[0] not in rows.fields:
        wanted = f"there is no field {field!r}" if field is not None else f"the list of numbers could be {present}"
        found = ", ".join(map(str, rows.fields))
        raise InputError(f"{rows.source}: {wanted}; fields found: {found}; name one with field=")
    name = present[0]

    def column(name: str | None) -> list[Any]:
        return list(rows.column(name)) if name in rows.fields and name is not None else [None] * rows.num_rows

    columns = (column(name), column(id_field or "id"), column(text_field), column("tokens"))
    for index, (values, identifier, text, tokens) in enumerate(zip(*columns, strict=True)):
        place = rows.place(index)
        check_list(rows.source, place, name, values)
        if isinstance(tokens, list):
            check_lengths(rows.source, place, (name, len(values)), ("tokens", len(tokens)))
        yield Entry(place, values, identifier, text if isinstance(text, str) else None)


def lm_eval_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a line; multiple choice, which has several log-likelihoods a line, is refused."""
    name = "filtered_resps" if "filtered_resps" in rows.fields else "resps"
    columns = {field: rows.column(field) for field in rows.fields}
    for index in range(rows.num_rows):
        row = {field: column[index] for field, column in columns.items()}
        place = rows.place(index)
        total = _single_sum(rows.source, place, name, row.get(name))
        given = row.get(text_field)
        text = given if isinstance(given, str) else _last_argument(row.get("arguments"))
        yield Entry(place, total, row.get(id_field or "doc_id"), text)


def _last_argument(arguments: Any) -> str | None:
    """The text of the only request: its last string, which for a continuation stands after the context."""
    requests = list(arguments.values()) if isinstance(arguments, Mapping) else arguments
    if not isinstance(requests, list) or len(requests) != 1:
        return None
    parts = list(requests[0].values()) if isinstance(requests[0], Mapping) else requests[0]
    strings = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    return strings[-1] if strings else None


def _single_sum(source: str, place: str, name: str, value: Any) -> float:
    """The only log-likelihood of a line of lm-evaluation-harness."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{source}: {place}: {name} must be a list with one log-likelihood, not {shown(value)}")
    if len(value) > 1:
        raise InputError(
            f"{source}: {place}: {name} has {len(value)} log-likelihoods (multiple choice), none of which is that of "
            "the item; use a task of type loglikelihood_rolling or loglikelihood"
        )
    innermost = _innermost(value)
    try:
        return float(innermost) if not isinstance(innermost, bool) else math.nan
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{source}: {place}: {name} holds {shown(innermost)}, no log-likelihood; tasks that generate text have none"
        ) from error


def _innermost(value: Any) -> Any:
    return _innermost(value[0]) if isinstance(value, list) and value else value
