"""Records with numbers of their own: a list with one number a token, or one sum for the whole text.

Plain: {"id": "a1", "text": "...", "log_probs": [null, -3.2, -0.1]}. Beside or instead of log_probs a record may have
lists of `STATISTICS` of the distributions that predict the tokens, and the tokens' ids in tokens. Its slice is the name
of the part of an item that it holds, or a list with a name, several or null for every position.

lm-evaluation-harness, `samples_*.jsonl` (`tdd.texts.samples` has the fields): `filtered_resps` is [sum] for
`loglikelihood_rolling`, [[sum, is_greedy]] for `loglikelihood` of a continuation (the last argument) given a context,
and [[sum, is_greedy], ...], one a choice, for `multiple_choice`, of which `target` names the right one by its number
or its text. Numbers may be written as strings. The number of tokens in a sum is not in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tdd.logprobs.record import Entry, check_lengths, check_list, check_slices
from tdd.logprobs.statistics import STATISTICS
from tdd.texts.rows import Rows, shown
from tdd.texts.samples import request_parts
from tdd.validate import InputError

FIELDS = ("log_probs", "logprobs", "token_log_probs", "token_logprobs")
"""Names under which the list is found."""


def plain_entries(rows: Rows, *, field: str | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a row, or one slice of it; lists may begin with null, for the first token, which has no context."""
    present = [field] if field is not None else [name for name in FIELDS if name in rows.fields]
    statistics = [name for name in STATISTICS if name in rows.fields and name != field]
    if len(present) > 1 or not set(present) <= set(rows.fields) or not (present or statistics):
        wanted = f"there is no field {field!r}" if field is not None else f"the list of numbers could be {present}"
        found = ", ".join(map(str, rows.fields))
        raise InputError(f"{rows.source}: {wanted}; fields found: {found}; name one with field=")
    columns = {name: rows.column(name) for name in (*present, *statistics)}
    sliced = "slice" in rows.fields

    def column(name: str) -> Sequence[Any]:
        return rows.column(name) if name in rows.fields else [None] * rows.num_rows

    beside = (column(id_field or "id"), column(text_field), column("tokens"), column("slice"))
    for index, (identifier, text, tokens, slices) in enumerate(zip(*beside, strict=True)):
        place, lists = rows.place(index), {name: values[index] for name, values in columns.items()}
        for name, values in lists.items():
            check_list(rows.source, place, name, values)
        first, *others = ((name, len(values)) for name, values in lists.items())
        if isinstance(tokens, list):
            others.append(("tokens", len(tokens)))
        for other in others:
            check_lengths(rows.source, place, first, other)
        yield Entry(
            place,
            lists[present[0]] if present else None,
            identifier,
            text if isinstance(text, str) else None,
            statistics={name: lists[name] for name in statistics},
            token_ids=tokens if isinstance(tokens, list) and all(map(_is_id, tokens)) else (),
            slices=check_slices(rows.source, place, slices, first) if sliced else None,
        )


def _is_id(token: Any) -> bool:
    """Whether it is a token's id: two tokens may have the same string."""
    return type(token) is int and abs(token) < 2**31


def lm_eval_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a line: the only request's, or the right choice's, with the sums of all choices beside it."""
    name = "filtered_resps" if "filtered_resps" in rows.fields else "resps"
    columns = {field: rows.column(field) for field in rows.fields}
    records = [{field: column[index] for field, column in columns.items()} for index in range(rows.num_rows)]
    places = [f"{rows.source}: {rows.place(index)}" for index in range(rows.num_rows)]
    read = [_request_sums(place, name, row) for place, row in zip(places, records, strict=True)]
    right = _right_choices(places, records, read)
    for index, (row, (sums, texts), chosen) in enumerate(zip(records, read, right, strict=True)):
        given = row.get(text_field)
        text = given if isinstance(given, str) else texts[chosen] if texts else None
        choices = sums if len(sums) > 1 else ()
        yield Entry(rows.place(index), sums[chosen], row.get(id_field or "id", row.get("doc_id")), text, choices)


def _request_sums(place: str, name: str, row: Mapping[str, Any]) -> tuple[list[float], list[str]]:
    """The log-likelihood of each request of a line, and its last string: for a continuation what follows the context.

    The second half of the requests, where it asks for the choices again without their context (`acc_mutual_info`), is
    left out: with an empty context or one that stands for none, and the choices with the blank before them or without.
    """
    requests = request_parts(row.get("arguments"))
    if any(isinstance(part, Mapping) for parts in requests for part in parts):
        raise InputError(
            f"{place}: the task generates text (generate_until), and its samples hold no log-probabilities; log a task "
            "of type multiple_choice, loglikelihood or loglikelihood_rolling, or score its items under the model: tdd "
            "audit MODEL --candidates SAMPLES --input-format lm-eval"
        )
    answers = row.get(name)
    if not isinstance(answers, list) or not answers:
        raise InputError(
            f"{place}: {name} must be a list with one log-likelihood, or one a choice, not {shown(answers)}"
        )
    sums = [_sum(place, name, answer) for answer in answers]
    texts = [[part for part in parts if isinstance(part, str)] for parts in requests]
    if len(texts) != len(sums) or not all(texts):
        if len(sums) > 1:
            raise InputError(f"{place}: {name} has {len(sums)} log-likelihoods and arguments {len(texts)} requests")
        return sums, []
    asked, half = [parts[-1] for parts in texts], len(texts) // 2
    contexts = [parts[0] if len(parts) > 1 else None for parts in texts]
    choices, again = ([text.strip() for text in part] for part in (asked[:half], asked[half:]))
    last = contexts[-1]  # what stands for none is the end of the context: "Answer:"
    alone = last is not None and {*contexts[half:]} == {last} and all((c or "").endswith(last) for c in contexts[:half])
    if half and choices == again and alone and (last == "" or (len({*choices}) > 1 and last not in contexts[:half])):
        return sums[:half], asked[:half]
    return sums, asked


def _sum(place: str, name: str, value: Any) -> float:
    """The log-likelihood of one request."""
    innermost = _innermost(value)
    try:
        return float(innermost) if not isinstance(innermost, bool) else math.nan
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"{place}: {name} holds {shown(innermost)}, no log-likelihood; tasks that generate text have none"
        ) from error


def _innermost(value: Any) -> Any:
    return _innermost(value[0]) if isinstance(value, list) and value else value


def _right_choices(
    places: Sequence[str], records: Sequence[Mapping[str, Any]], read: Sequence[tuple[list[float], list[str]]]
) -> list[int]:
    """The right choice of every line: 0 for a single request, else what `target` says.

    A target is a number from 0 or the text of a choice. One reading serves the whole file: the one that finds a choice
    in every line and agrees with the accuracy that is recorded there: 0 or 1; between them, several choices are right.
    """

    def by_number(row: Mapping[str, Any], sums: list[float], texts: list[str]) -> int | None:
        target = str(row.get("target")).strip()
        return int(target) if target.isascii() and target.isdigit() and int(target) < len(sums) else None

    def by_text(row: Mapping[str, Any], sums: list[float], texts: list[str]) -> int | None:
        target = str(row.get("target")).strip()
        found = [choice for choice, text in enumerate(texts) if text.strip() == target]
        return found[0] if len(found) == 1 else None

    several = [i for i, (sums, _) in enumerate(read) if len(sums) > 1]
    readings, failures = [], []
    for way in (by_number, by_text):
        right = [0] * len(read)
        for i in several:
            (sums, texts), row = read[i], records[i]
            choice, accuracy = way(row, sums, texts), row.get("acc")
            best = max(range(len(sums)), key=sums.__getitem__)
            known = isinstance(accuracy, (bool, int, float)) and math.isfinite(accuracy)
            if choice is None or (known and accuracy != (choice == best)):
                failures.append(i)
                break
            right[i] = choice
        else:
            readings.append(right)
    if not readings:
        i = max(failures)
        raise InputError(
            f"{places[i]}: target {shown(records[i].get('target'))} does not tell which of the {len(read[i][0])} "
            "choices is right: as a number from 0 and as a text it names none of them, or one that contradicts the "
            "recorded accuracy (acc); tasks with several right answers, or with one context a choice, cannot be read"
        )
    if readings[0] != readings[-1]:
        i = next(i for i in several if readings[0][i] != readings[-1][i])
        raise InputError(
            f"{places[i]}: target {shown(records[i].get('target'))} is the number of one choice and the text of "
            "another, and no line has an accuracy (acc) that tells which is meant; log the samples with the metric acc"
        )
    return readings[0]
