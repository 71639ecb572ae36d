"""lm-evaluation-harness `samples_*.jsonl`: one log-likelihood a document, the sum over its tokens.

A line has `doc_id`, `arguments` (what was asked: [[text]] or {"gen_args_0": {"arg_0": text}}) and `filtered_resps`:
[sum] for `loglikelihood_rolling`, [[sum, is_greedy]] for `loglikelihood` of a continuation (the last argument) given
a context; numbers may be written as strings. How many tokens were summed is not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tdd.logprobs.record import Entry
from tdd.texts.rows import Rows
from tdd.validate import logprobs as checks

__all__ = ["entries"]


def entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a line; multiple choice, which has several log-likelihoods a line, is refused."""
    name = "filtered_resps" if "filtered_resps" in rows.fields else "resps"
    columns = {field: rows.column(field) for field in rows.fields}
    for index in range(rows.num_rows):
        row = {field: column[index] for field, column in columns.items()}
        place = rows.place(index)
        total = checks.single_sum(rows.source, place, name, row.get(name))
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
