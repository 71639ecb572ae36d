"""Answers of OpenAI-compatible servers: batches, choices, identifiers; and completions with `echo`.

choices[].logprobs = {"tokens": [...], "token_logprobs": [null, -3.2, ...], ...}. The list of an echo holds the prompt
and then whatever was generated after it (`max_tokens` of some servers is at least 1). Only the prompt is the text;
generated tokens are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tdd.logprobs.record import Entry, check_lengths, shown
from tdd.texts.rows import Rows
from tdd.validate.errors import InputError

__all__ = ["Choice", "choices", "entries", "records"]

_logger = logging.getLogger("tdd")

_SERVER_IDS = ("cmpl-", "chatcmpl-", "batch_req_", "gen-")
"""Prefixes of identifiers that a server drew at random; they do not name texts."""


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
            record = {**row, **_batch_body(rows.source, rows.place(index), row)}
        yield rows.place(index), record, identifier


def choices(rows: Rows, id_field: str | None) -> Iterator[Choice]:
    """Every choice of every answer. Several choices of one answer are called "<id>-<index>"."""
    for place, record, identifier in records(rows, id_field):
        answers = record.get("choices")
        if not isinstance(answers, list) or not answers or not all(isinstance(answer, Mapping) for answer in answers):
            raise InputError(f"{rows.source}: {place}: choices must be a list of objects, not {shown(answers)}")
        if len(answers) == 1:
            yield Choice(place, record, answers[0], 1, identifier)
            continue
        for position, value in enumerate(answers):
            index = value.get("index", position)
            name = None if identifier is None else f"{identifier}-{index}"
            yield Choice(f"{place}, choice {index}", record, value, len(answers), name)


def entries(rows: Rows, *, generated: int | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a choice.

    Args:
      rows: the answers.
      generated: tokens at the end of each list that the model generated; None: by `usage.completion_tokens`.
      id_field: see `read_log_probs`.
      text_field: see `read_log_probs`.
    """
    unknown = 0
    for choice in choices(rows, id_field):
        logprobs = _check_echo(rows.source, choice.place, choice.value.get("logprobs"))
        values, tokens = logprobs["token_logprobs"], logprobs.get("tokens")
        if isinstance(tokens, list):
            check_lengths(rows.source, choice.place, ("token_logprobs", len(values)), ("tokens", len(tokens)))
        if generated is None and values and values[0] is not None:
            raise InputError(
                f"{rows.source}: {choice.place}: the first token has a log-probability ({shown(values[0])}), so the "
                "list is not an echo of a prompt but what the model generated; ask with echo=true. If it is the text "
                "after all, say generated=0"
            )
        usage = choice.record.get("usage")
        unknown += generated is None and not isinstance(usage, Mapping)
        count = _num_generated(rows, choice, usage) if generated is None else generated
        if count >= len(values) > 0:
            raise InputError(
                f"{rows.source}: {choice.place}: all {len(values)} tokens were generated ({count}), none is of a "
                "prompt; ask with echo"
            )
        kept = len(values) - count
        yield Entry(choice.place, values[:kept], choice.id, _text(choice, tokens, kept, count, text_field))
    if unknown:
        _logger.warning(
            "%s: %d choices do not say how many tokens were generated (usage.completion_tokens): taken for 0; "
            "give generated= where max_tokens was not 0",
            rows.source,
            unknown,
        )


def _num_generated(rows: Rows, choice: Choice, usage: Any) -> int:
    """Generated tokens of a choice. `usage` counts those of all choices; one each is what max_tokens=1 gives."""
    total = (usage.get("completion_tokens") if isinstance(usage, Mapping) else 0) or 0
    if isinstance(total, bool) or not isinstance(total, int) or total < 0:
        raise InputError(
            f"{rows.source}: {choice.place}: usage.completion_tokens must be a number of tokens, not {shown(total)}"
        )
    if choice.number == 1 or total == 0:
        return total
    if total == choice.number:
        return 1
    raise InputError(
        f"{rows.source}: {choice.place}: {total} tokens were generated in {choice.number} choices, and how many in "
        "each is not said; ask with max_tokens=0 (or 1), or give generated= if it is the same number everywhere"
    )


def _text(choice: Choice, tokens: Any, kept: int, generated: int, text_field: str) -> str | None:
    """The echoed prompt, where it can be told."""
    given = choice.record.get(text_field)
    if choice.number == 1 and isinstance(given, str):
        return given
    whole = choice.value.get("text")
    if not isinstance(whole, str) or not generated:
        return whole if isinstance(whole, str) else None
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        prompt = "".join(tokens[:kept])
        return prompt if whole.startswith(prompt) else None
    return None


def _batch_body(source: str, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer inside a line of a batch file."""
    response = row.get("response")
    body = response.get("body") if isinstance(response, Mapping) else None
    if not isinstance(body, Mapping) or row.get("error"):
        raise InputError(f"{source}: {place}: the request failed: {shown(row.get('error') or response)}; ask it again")
    return body


def _check_echo(source: str, place: str, logprobs: Any) -> Mapping[str, Any]:
    """Log-probabilities of a completion."""
    if isinstance(logprobs, Mapping) and isinstance(logprobs.get("token_logprobs"), list):
        return logprobs
    if isinstance(logprobs, Mapping) and "content" in logprobs:
        raise InputError(
            f"{source}: {place}: a chat's logprobs are of the tokens that the model generated, not of a text given to "
            "it; use completions with echo=true, or vLLM's prompt_logprobs"
        )
    raise InputError(
        f"{source}: {place}: logprobs has no list token_logprobs ({shown(logprobs)}); ask with echo=true, logprobs=1 "
        "and max_tokens=0 (or 1)"
    )
